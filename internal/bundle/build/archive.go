package build

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
)

// An archive is a file or a directory with images.
type archive struct {
	name   string // in images/
	layout bundle.Layout
	images []candidate
}

// A candidate is an image of an archive, under one name.
type candidate struct {
	name   string // complete; may be empty
	target ocispec.Descriptor
}

// A meter counts the bytes that are written to it, and reports them.
type meter struct {
	done   int64
	report func(done int64) error
}

func (m *meter) Write(b []byte) (int, error) {
	m.done += int64(len(b))
	return len(b), m.report(m.done)
}

// openArchives opens all archives of a directory, in the order of their names. The caller closes them.
func (b *Build) openArchives(ctx context.Context, dir string) (all []*archive, err error) {
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		m := &meter{report: func(done int64) error {
			if b.Progress != nil {
				b.Progress(name, done)
			}
			return context.Cause(ctx)
		}}
		a, err := openArchive(filepath.Join(dir, name), b.TempDir, m)
		if err != nil {
			return all, fmt.Errorf("%s/%s: %w", imagesDir, name, err)
		}
		a.name = name
		all = append(all, a)
	}
	return all, nil
}

// openArchive opens an archive. It writes the bytes that it decompresses to count, and the bytes whose digests it computes.
func openArchive(file, temp string, count io.Writer) (*archive, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	var l bundle.Layout
	if info.IsDir() {
		l, err = bundle.OpenLayout(file)
	} else {
		l, err = openTar(file, temp, count)
	}
	if err != nil {
		return nil, err
	}
	a := &archive{layout: l}
	if a.images, err = ociImages(l); err == nil && a.images == nil {
		a.layout, a.images, err = dockerImages(l, count)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return a, nil
}

// openTar opens a tar. It decompresses one that is compressed to a file in temp.
func openTar(file, temp string, count io.Writer) (bundle.Layout, error) {
	f, err := bundle.OpenRegular(file)
	if err != nil {
		return nil, err
	}
	plain, err := decompress(f, temp, count)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if plain != f {
		f.Close()
	}
	t, err := bundle.NewImageTar(plain)
	if err != nil {
		return nil, errors.Join(err, plain.Close())
	}
	return t, nil
}

const (
	gzipMagic = "\x1f\x8b"
	zstdMagic = "\x28\xb5\x2f\xfd"
	// maxArchive is the maximum size of a decompressed archive, in bytes.
	maxArchive = 64 << 30
	// maxWindow is the maximum memory of a zstd decoder, as for islet images import.
	maxWindow = 64 << 20
)

// readMagic returns the first bytes of a file.
func readMagic(f io.ReaderAt) (string, error) {
	b := make([]byte, len(zstdMagic))
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return string(b[:n]), err
}

// compression returns gzip, zstd or "" for the first bytes of a file.
func compression(magic string) string {
	switch {
	case len(magic) >= 2 && magic[:2] == gzipMagic:
		return "gzip"
	case magic == zstdMagic:
		return "zstd"
	}
	return ""
}

// decompress returns f if f is not compressed. Otherwise it decompresses f to a file without a name in the directory temp, and
// returns that file. It also writes the decompressed bytes to count.
func decompress(f *os.File, temp string, count io.Writer) (*os.File, error) {
	magic, err := readMagic(f)
	if err != nil {
		return nil, err
	}
	var in io.Reader
	switch compression(magic) {
	case "gzip":
		in, err = gzip.NewReader(f)
	case "zstd":
		d, e := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if e == nil {
			defer d.Close()
		}
		in, err = d, e
	default:
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	out, err := os.CreateTemp(temp, "islet-bundle-*")
	if err != nil {
		return nil, err
	}
	err = os.Remove(out.Name())
	if err == nil {
		var n int64
		if n, err = io.Copy(io.MultiWriter(out, count), io.LimitReader(in, maxArchive+1)); err == nil && n > maxArchive {
			err = fmt.Errorf("it has more than %d bytes", int64(maxArchive))
		}
	}
	if err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: free some space, or name a directory with more of it in TMPDIR", err)
		}
		return nil, errors.Join(fmt.Errorf("decompress it: %w", err), out.Close())
	}
	return out, nil
}

// filePart returns a part for a file of any size. It reads the file once for its digest.
func filePart(name, mediaType string) (bundle.Part, error) {
	open := func() (io.ReadCloser, error) { return bundle.OpenRegular(name) }
	f, err := open()
	if err != nil {
		return bundle.Part{}, err
	}
	defer f.Close()
	sum := digest.SHA256.Digester()
	n, err := io.Copy(sum.Hash(), f)
	if err != nil {
		return bundle.Part{}, err
	}
	return bundle.Part{Descriptor: ocispec.Descriptor{MediaType: mediaType, Digest: sum.Digest(), Size: n}, Open: open}, nil
}

// memory is a layout whose documents are partly in memory. Its files have the names of blobs.
type memory struct {
	bundle.Layout
	documents map[string][]byte
	files     map[string]string // the name of a blob's file --> the name of the file in Layout
}

func (m *memory) Open(name string) (io.ReadCloser, int64, error) {
	if b, ok := m.documents[name]; ok {
		return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
	}
	if file, ok := m.files[name]; ok {
		name = file
	}
	return m.Layout.Open(name)
}
