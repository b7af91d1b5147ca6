package bundle

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A Layout is an OCI image layout. Its contents are not trusted, and may change between two reads.
type Layout interface {
	// Open opens a file, such as index.json or blobs/sha256/HEX. The caller closes the reader. The size is the file's size. If there is
	// no such file, the error wraps fs.ErrNotExist.
	Open(name string) (r io.ReadCloser, size int64, err error)
	Close() error
}

// A BlobOpener is a Layout that needs the complete descriptor of a blob to open the blob. A registry is an example, because it has separate
// endpoints for manifests and for other blobs.
type BlobOpener interface {
	// OpenBlob opens a blob and returns its size, as Layout.Open does.
	OpenBlob(d ocispec.Descriptor) (r io.ReadCloser, size int64, err error)
}

// OpenLayout opens a directory, or a tar that is not compressed.
func OpenLayout(name string) (Layout, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		return directory{root}, nil
	}
	f, err := OpenRegular(name)
	if err != nil {
		return nil, err
	}
	t, err := NewTar(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return t, nil
}

// OpenRegular opens a regular file for reading. It does not wait for the writer of a FIFO.
func OpenRegular(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return f, closeUnlessRegular(f)
}

func closeUnlessRegular(f *os.File) error {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", f.Name())
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// directory is a layout in a directory. A symbolic link cannot lead out of the directory.
type directory struct{ root *os.Root }

func (d directory) Close() error { return d.root.Close() }

func (d directory) Open(name string) (io.ReadCloser, int64, error) {
	f, err := d.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	if err := closeUnlessRegular(f); err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// readFile reads a small file of a layout that no digest protects.
func readFile(l Layout, name string, limit int64) ([]byte, error) {
	r, size, err := l.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > limit {
		return nil, fmt.Errorf("%s has %d bytes, and at most %d are allowed", name, size, limit)
	}
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return b, err
}

// blobFile returns the name of a blob's file. The digest must be valid.
func blobFile(d digest.Digest) string { return "blobs/" + d.Algorithm().String() + "/" + d.Encoded() }

// OpenBlob checks the descriptor and the size of a blob, and opens the blob. The caller verifies the digest of the bytes.
func OpenBlob(l Layout, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if err := checkDescriptor(desc.Digest, desc.Size, MaxBlob); err != nil {
		return nil, err
	}
	return openBlob(l, desc)
}

// openBlob opens a blob whose descriptor is valid, and compares its size.
func openBlob(l Layout, desc ocispec.Descriptor) (io.ReadCloser, error) {
	var r io.ReadCloser
	var size int64
	var err error
	if o, ok := l.(BlobOpener); ok {
		r, size, err = o.OpenBlob(desc)
	} else {
		r, size, err = l.Open(blobFile(desc.Digest))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s is missing", desc.Digest)
	case err != nil:
		return nil, err
	case size != desc.Size:
		return nil, errors.Join(fmt.Errorf("%s has %d bytes instead of %d", desc.Digest, size, desc.Size), r.Close())
	}
	return r, nil
}

func differs(desc ocispec.Descriptor) error {
	return fmt.Errorf("%s has other bytes: the bundle is damaged or was changed", desc.Digest)
}

// CopyBlob writes a blob to w while it checks its size and digest. If it returns an error, w may have received any bytes.
func CopyBlob(w io.Writer, l Layout, desc ocispec.Descriptor, limit int64) error {
	if err := checkDescriptor(desc.Digest, desc.Size, limit); err != nil {
		return err
	}
	r, err := openBlob(l, desc)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := digest.SHA256.Digester()
	n, err := io.Copy(io.MultiWriter(w, sum.Hash()), io.LimitReader(r, desc.Size))
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", desc.Digest, err)
	case n != desc.Size:
		return fmt.Errorf("read %s: %w", desc.Digest, io.ErrUnexpectedEOF)
	case sum.Digest() != desc.Digest:
		return differs(desc)
	}
	return nil
}
