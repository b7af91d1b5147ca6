package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxEntries is the maximum number of files in an archive.
	maxEntries = 16384
	// smallBlob is the maximum size of a blob that is kept in memory until an image refers to it.
	// smallBlobs is the maximum size of all such blobs. Both are in bytes.
	smallBlob  = 256 << 10
	smallBlobs = 8 << 20
	// maxName is the maximum length of a file's name or a link's target. maxNames is the maximum
	// total length of the names and targets in an archive. Both are in bytes.
	maxName  = 4096
	maxNames = 4 << 20
	// maxBlobs is the maximum total number of layers and tags in an archive in docker's format.
	maxBlobs = 16384
	// maxPadding is the maximum size of the data after the end of a tar archive. The headers of one
	// file, such as long names and PAX records, may have four times this size. It is in bytes.
	maxPadding = 1 << 20
)

// An archive contains the blobs of an image archive by file name. The images are read from its index.json or
// manifest.json.
type archive struct {
	store  content.Store // for blobs that are too large for memory and cannot be read again
	dir    string        // directory of the store, whose free space is checked
	source io.ReaderAt   // the archive if it is a regular file, otherwise nil
	files  map[string]blob
	links  map[string]string // targets of symbolic and hard links, by path
	blobs  map[digest.Digest]blob
	memory int64 // size of all blobs in memory, in bytes
	names  int   // length of all names, in bytes

	decoding *sync.Mutex // held while a document is decoded
}

// A blob is a file of an archive. Its data is in memory, in the archive itself, or in the content
// store.
type blob struct {
	size   int64
	data   []byte
	at     int64         // offset in the archive
	digest digest.Digest // "" if it will be read from the archive
}

// readArchive reads a tar stream to its end. It keeps small files in memory. A large file is read
// from the reader source later. If source is nil, readArchive writes large files to the content
// store under the lease of ctx. A name in the archive is used only as a map key, never as a path.
func (s *Service) readArchive(ctx context.Context, r io.Reader, source io.ReaderAt) (*archive, error) {
	a := &archive{
		store: s.c.Client.ContentStore(), dir: s.c.Root, source: source, decoding: &s.shared.decoding,
		files: map[string]blob{},
		links: map[string]string{},
		blobs: map[digest.Digest]blob{},
	}
	at := &positionReader{Reader: r}
	t := tar.NewReader(at)
	at.allowFile(0)
	for n := 0; ; n++ {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, notArchive(err)
		}
		if n == maxEntries {
			return nil, fmt.Errorf("more than %d files in the archive: %w", maxEntries, errdefs.ErrInvalidArgument)
		}
		if err := a.addEntry(ctx, t, h, at); err != nil {
			return nil, err
		}
	}
	// The rest is padding. The padding must be read too, because the checksums of gzip and zstd are
	// behind it.
	if n, err := io.Copy(io.Discard, io.LimitReader(r, maxPadding+1)); err != nil {
		return nil, err
	} else if n > maxPadding {
		return nil, fmt.Errorf("the archive has data after its end: %w", errdefs.ErrInvalidArgument)
	}
	return a, nil
}

// addEntry adds a file or a link. Entries of other types are skipped.
func (a *archive) addEntry(ctx context.Context, t *tar.Reader, h *tar.Header, at *positionReader) error {
	if h.Typeflag == tar.TypeGNUSparse {
		return errSparse
	}
	at.allowFile(h.Size)
	if len(h.Name) > maxName || len(h.Linkname) > maxName {
		return fmt.Errorf("the name %.40q... or its link target has more than %d bytes: %w", h.Name, maxName, errdefs.ErrInvalidArgument)
	}
	if a.names += len(h.Name) + len(h.Linkname); a.names > maxNames {
		return fmt.Errorf("the names in the archive have more than %d bytes: %w", maxNames, errdefs.ErrInvalidArgument)
	}
	// Clone the strings. The original strings would keep all records of the header in memory,
	// because they are substrings of these records.
	name, link := strings.Clone(path.Clean(h.Name)), strings.Clone(h.Linkname)
	switch h.Typeflag {
	case tar.TypeSymlink:
		a.links[name] = path.Join(path.Dir(name), link)
	case tar.TypeLink:
		a.links[name] = path.Clean(link)
	case tar.TypeReg:
		if err := a.add(ctx, t, name, h, at.n); err != nil {
			return fmt.Errorf("read %q of the archive: %w", name, err)
		}
	}
	return nil
}

var errSparse = fmt.Errorf("a file of the archive is sparse, which is not supported: %w", errdefs.ErrInvalidArgument)

// A positionReader counts the bytes that are read. It fails if the headers of one file are too long. It
// does not implement io.Seeker, so tar reads the data that it skips.
type positionReader struct {
	io.Reader
	n, most int64
}

// allowFile sets the limit so that the content of a file of this size and the headers of the next
// file can be read. Sparse files are rejected before their size is used.
func (p *positionReader) allowFile(size int64) {
	p.most = math.MaxInt64
	if size >= 0 && size < math.MaxInt64-p.n-4*maxPadding {
		p.most = p.n + size + 4*maxPadding // name, link target, PAX records and padding
	}
}

func (p *positionReader) Read(b []byte) (int, error) {
	if p.n >= p.most {
		return 0, fmt.Errorf("the headers of one file have more than %d bytes: %w", 4*maxPadding, errdefs.ErrInvalidArgument)
	}
	n, err := p.Reader.Read(b)
	p.n += int64(n)
	return n, err
}

func notArchive(err error) error {
	if errors.Is(err, tar.ErrHeader) {
		return fmt.Errorf("not a tar archive, or a damaged one: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return err
}

// add adds a file with the content of a reader. The offset is the position of the content in the archive.
func (a *archive) add(ctx context.Context, r io.Reader, name string, h *tar.Header, offset int64) error {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return errSparse
		}
	}
	b := blob{size: h.Size}
	switch {
	case h.Size <= smallBlob && a.memory+h.Size <= smallBlobs:
		b.data = make([]byte, h.Size)
		if _, err := io.ReadFull(r, b.data); err != nil {
			return err
		}
		a.memory += h.Size
		b.digest = digest.FromBytes(b.data)
	case a.source != nil:
		b.at = offset
		// In an OCI layout, the file name of a blob contains its digest. The digest is verified when
		// the blob is read.
		if d, ok := strings.CutPrefix(name, ocispec.ImageBlobsDir+"/"); ok {
			a.blobs[digest.Digest(strings.Replace(d, "/", ":", 1))] = b
		}
	default:
		var err error
		if b.digest, err = a.storeBlob(ctx, r, name, h.Size); err != nil {
			return err
		}
	}
	a.files[name] = b
	if b.digest != "" {
		a.blobs[b.digest] = b
	}
	return nil
}

// storeBlob writes a blob to the content store.
func (a *archive) storeBlob(ctx context.Context, r io.Reader, name string, size int64) (digest.Digest, error) {
	// The lease ID is part of the reference, so concurrent imports use different references.
	w, err := content.OpenWriter(ctx, a.store, content.WithRef("import-"+leaseOf(ctx)+"-"+name))
	if err != nil {
		return "", err
	}
	defer w.Close()
	if err := w.Truncate(0); err != nil { // the archive may contain a name twice
		return "", err
	}
	if _, err := content.CopyReader(w, newSpaceReader(r, a.dir)); err != nil {
		return "", err
	}
	sum := w.Digest()
	if err := w.Commit(ctx, size, sum); err != nil && !errdefs.IsAlreadyExists(err) {
		return "", err
	}
	return sum, nil
}

// findFile returns the file with the name that a manifest contains. It follows links.
func (a *archive) findFile(name string) (blob, error) {
	at := path.Clean(name)
	for range 8 { // limited, because links may form a loop
		if b, ok := a.files[at]; ok {
			return b, nil
		}
		to, ok := a.links[at]
		if !ok {
			break
		}
		at = to
	}
	return blob{}, fmt.Errorf("%q is not in the archive: %w", name, errdefs.ErrNotFound)
}

// ReaderAt opens a blob by its digest. It reads the blob from the archive or from the content
// store.
func (a *archive) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	if b, ok := a.blobs[desc.Digest]; ok {
		return a.open(ctx, b)
	}
	return a.store.ReaderAt(ctx, desc)
}

func (a *archive) open(ctx context.Context, b blob) (content.ReaderAt, error) {
	switch {
	case b.data != nil:
		return sectionReader{io.NewSectionReader(bytes.NewReader(b.data), 0, b.size)}, nil
	case b.digest == "":
		return sectionReader{io.NewSectionReader(a.source, b.at, b.size)}, nil
	}
	return a.store.ReaderAt(ctx, ocispec.Descriptor{Digest: b.digest})
}

// A sectionReader is a content.ReaderAt whose Close does nothing.
type sectionReader struct{ *io.SectionReader }

func (sectionReader) Close() error { return nil }

// read reads a small blob into memory and verifies its digest.
func (a *archive) read(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	ra, err := a.ReaderAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer ra.Close()
	if ra.Size() > maxManifest { // the actual size, not the size in the descriptor
		return nil, fmt.Errorf("%d bytes are too many: %w", ra.Size(), errdefs.ErrInvalidArgument)
	}
	data, err := io.ReadAll(content.NewReader(ra))
	if err != nil {
		return nil, err
	}
	if got := desc.Digest.Algorithm().FromBytes(data); got != desc.Digest {
		return nil, fmt.Errorf("its digest is %s: %w", got, errdefs.ErrInvalidArgument)
	}
	return data, nil
}
