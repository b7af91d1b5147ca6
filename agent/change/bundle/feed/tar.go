package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/poll"
)

const (
	// firstPart is the size of the first request of a tar, and of a request for what follows it. The documents are at the beginning.
	firstPart = 64 << 10
	// headerPart is the size of a request for the header of an entry behind a layer: the end of the layer, its padding and the header.
	headerPart = 1 << 10
	// maxWindows is the maximum number of parts that a rangedTar keeps in memory.
	maxWindows = 32
	// maxHeaderTime is the maximum duration for all headers of a tar.
	maxHeaderTime = time.Hour
)

// A rangedTar is a server with a tar that is read by ranges. It finds the blobs by the headers of the entries.
type rangedTar struct {
	*Opener
	address string
	version poll.Validators // each request is only for this version of the tar
	size    int64
	tar     *format.Tar

	ctx     context.Context // of ReadAt
	windows []window        // the newest last
}

// A window is a part of the tar in memory.
type window struct {
	offset int64
	data   []byte
}

// openTar requests the first part of a tar. A server that does not support ranges sends the whole tar.
func (o *Opener) openTar(ctx context.Context, r Request) (server, poll.Validators, error) {
	a, err := o.get(ctx, r.From, 0, firstPart-1, r.Last, http.StatusOK, http.StatusPartialContent, http.StatusNotModified)
	if err != nil {
		wrong := download.StatusError{}
		errors.As(err, &wrong)
		return nil, poll.Validators{}, adviseSlash(err, r.From, wrong.Path)
	}
	v, err := newValidators(a, r.Last)
	if err != nil {
		return nil, v, errors.Join(err, a.Body.Close())
	}
	if a.StatusCode == http.StatusOK {
		s, err := o.openWhole(a, r)
		return s, v, adviseSlash(errors.Join(err, a.Body.Close()), r.From, download.AnsweredPath(a))
	}
	s, err := o.openRanged(ctx, a, r.From, v)
	return s, v, adviseSlash(err, r.From, download.AnsweredPath(a))
}

// adviseSlash adds advice to an error of a tar, if the server has redirected the request to the same path with a slash, as servers do for
// directories.
func adviseSlash(err error, from, answered string) error {
	if u, wrong := parseURL(from); err == nil || wrong != nil || answered != u.Path+"/" {
		return err
	}
	return fmt.Errorf("add a slash to the URL, which names a directory: %w", err)
}

// openRanged reads the headers of a tar whose first part is in the response.
func (o *Opener) openRanged(ctx context.Context, a *http.Response, address string, v poll.Validators) (server, error) {
	last, size, err := parseRange(a)
	t := &rangedTar{Opener: o, address: address, version: v, size: size}
	first := make([]byte, last+1)
	if err == nil {
		_, err = io.ReadFull(a.Body, first)
	}
	if err := errors.Join(err, a.Body.Close()); err != nil {
		return nil, unreachable(err)
	}
	t.windows = []window{{0, first}}
	bounded, stop := context.WithTimeout(ctx, maxHeaderTime)
	defer stop()
	t.ctx = bounded
	t.tar, err = format.NewRemoteTar(t, size)
	t.ctx = ctx
	return t, err
}

// ReadAt reads from the parts in memory, and requests a part that is not there.
func (t *rangedTar) ReadAt(p []byte, offset int64) (n int, err error) {
	for n < len(p) && offset < t.size {
		w, err := t.windowAt(offset, int64(len(p)-n))
		if err != nil {
			return n, err
		}
		c := copy(p[n:], w.data[offset-w.offset:])
		n, offset = n+c, offset+int64(c)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// windowAt returns a window with the byte at an offset. After a jump it requests little, because the next read is behind a layer.
func (t *rangedTar) windowAt(offset, want int64) (window, error) {
	end := int64(0)
	for _, w := range t.windows {
		if end = w.offset + int64(len(w.data)); offset >= w.offset && offset < end {
			return w, nil
		}
	}
	part := max(headerPart, min(want, firstPart))
	if offset == end {
		part = firstPart
	}
	part = min(part, t.size-offset)
	r, err := t.open(t.ctx, offset, part)
	if err != nil {
		return window{}, err
	}
	defer r.Close()
	w := window{offset, make([]byte, part)}
	if _, err := io.ReadFull(r, w.data); err != nil {
		return window{}, unreachable(err)
	}
	if len(t.windows) == maxWindows {
		t.windows = append(t.windows[:0], t.windows[1:]...)
	}
	t.windows = append(t.windows, w)
	return w, nil
}

// open requests a range of the tar.
func (t *rangedTar) open(ctx context.Context, offset, size int64) (io.ReadCloser, error) {
	a, err := t.get(ctx, t.address, offset, offset+size-1, poll.Validators{}, http.StatusPartialContent)
	if err != nil {
		return nil, err
	}
	v, err := newValidators(a, poll.Validators{})
	if err == nil && v != t.version {
		err = download.UnreachableError{Err: errors.New("the bundle has changed on the server meanwhile")}
	}
	if err == nil {
		err = checkRange(a, offset, offset+size-1, t.size)
	}
	if err != nil {
		return nil, errors.Join(err, a.Body.Close())
	}
	return a.Body, nil
}

func (t *rangedTar) readFile(_ context.Context, name string) ([]byte, error) {
	r, _, err := t.tar.Open(name)
	if err != nil {
		return nil, err
	}
	return readSmall(r, name)
}

func (t *rangedTar) fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, int64, error) {
	at, size, found := t.tar.Extent(d.Digest)
	switch {
	case !found:
		return nil, 0, missing(d.Digest.String())
	case size != d.Size:
		return nil, 0, fmt.Errorf("%s has %d bytes instead of %d", d.Digest, size, d.Size)
	case size <= firstPart && offset == 0: // its neighbours are probably read next
		return io.NopCloser(io.NewSectionReader(t, at, size)), 0, nil
	}
	r, err := t.open(ctx, at+offset, size-offset)
	return r, offset, err
}

func (t *rangedTar) Close() error { return nil }
