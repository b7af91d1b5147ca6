package feed

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	format "github.com/islet-edge/islet/internal/bundle"
)

const (
	// maxCached is the maximum size of a document that a Layout keeps in memory, and maxCache the maximum of all of them, in bytes. An
	// import reads each document several times.
	maxCached = 64 << 10
	maxCache  = 4 << 20
	// maxSmall is the maximum size of a file that no digest protects, in bytes.
	maxSmall = 16 << 10
)

// A Layout is a format.Layout on a server. One goroutine may use it.
type Layout struct {
	ctx    context.Context // a field, because the methods of a format.Layout have no context as a parameter
	c      *Config
	remote server
	folder folder
	tell   func(status string, current, total int64)
	cache  map[digest.Digest][]byte
	cached int
}

var _ interface {
	format.Layout
	format.BlobOpener
} = (*Layout)(nil)

// Open opens oci-layout or index.json.
func (l *Layout) Open(name string) (io.ReadCloser, int64, error) {
	data, err := l.remote.readFile(l.ctx, name)
	if err != nil {
		return nil, 0, err
	}
	return memory(data), int64(len(data)), nil
}

func memory(data []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(data)) }

// OpenBlob opens a blob. It fetches a layer into the folder first, so that the import does not wait for the server while it unpacks.
func (l *Layout) OpenBlob(d ocispec.Descriptor) (io.ReadCloser, int64, error) {
	if t, ok := l.remote.(*wholeTar); ok {
		name, err := format.BlobFile(d.Digest)
		if err != nil {
			return nil, 0, err
		}
		return t.Open(name)
	}
	if format.IsLarge(d.MediaType) {
		f, err := l.folder.fetch(l.ctx, l.remote, d, l.tell)
		return f, d.Size, err
	}
	if data := l.cache[d.Digest]; data != nil {
		return memory(data), int64(len(data)), nil
	}
	if data := l.c.ReadKnown(d); data != nil {
		return memory(data), int64(len(data)), nil
	}
	in, _, err := l.remote.fetch(l.ctx, d, 0)
	if err != nil {
		return nil, 0, err
	}
	r := &exactReader{in, d.Size}
	if d.Size > maxCached || l.cached+int(d.Size) > maxCache {
		return r, d.Size, nil
	}
	defer r.Close()
	data := make([]byte, d.Size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", d.Digest, err)
	}
	if digest.FromBytes(data) == d.Digest { // otherwise the caller reports it
		if l.cache == nil {
			l.cache = map[digest.Digest][]byte{}
		}
		l.cache[d.Digest], l.cached = data, l.cached+len(data)
	}
	return memory(data), d.Size, nil
}

// FetchedBytes returns the number of bytes that were fetched and that Imported will remove.
func (l *Layout) FetchedBytes() int64 { return l.folder.bytes() }

// Imported removes the layers of an image that was imported.
func (l *Layout) Imported() error { return l.folder.remove() }

// Close closes the connections. It keeps the layers that were fetched.
func (l *Layout) Close() error { return l.remote.Close() }

// missing returns the error for a file that a layout does not have.
func missing(name string) error { return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist} }
