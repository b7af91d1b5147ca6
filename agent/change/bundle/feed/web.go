package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/poll"
)

// get requests the bytes from offset to last, inclusive. If last is negative, it requests the whole file. The request has as few headers as
// possible, because a node sends it often.
func (o *Opener) get(ctx context.Context, address string, offset, last int64, v poll.Validators, statuses ...int) (*http.Response, error) {
	header := http.Header{"User-Agent": {""}}
	if last >= 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, last))
	}
	v.AddTo(header)
	if o.client == nil {
		o.client = o.c.NewClient()
	}
	a, err := download.Get(ctx, o.client, address, header, last-offset+1, statuses...)
	if err != nil {
		o.client.CloseIdleConnections() // the connection may be broken: do not reuse it
		return nil, err
	}
	if a.Header.Get("Content-Encoding") != "" {
		a.Body.Close()
		err = download.UnreachableError{Err: fmt.Errorf("the server compresses the file as %.100q, which was not requested",
			a.Header.Get("Content-Encoding"))}
	}
	return a, err
}

// openWeb opens a directory whose URL ends with a slash, or a tar.
func (o *Opener) openWeb(ctx context.Context, r Request) (server, poll.Validators, error) {
	u, err := parseURL(r.From)
	if err != nil {
		return nil, poll.Validators{}, err
	}
	if !strings.HasSuffix(u.Path, "/") {
		return o.openTar(ctx, r)
	}
	d := &directory{o, u, nil}
	a, err := o.get(ctx, d.address(ocispec.ImageIndexFile), 0, -1, r.Last, http.StatusOK, http.StatusNotModified)
	if err != nil {
		return nil, poll.Validators{}, fmt.Errorf("%s: %w", ocispec.ImageIndexFile, err)
	}
	v, err := newValidators(a, r.Last)
	if err == nil {
		d.index, err = readSmall(a.Body, ocispec.ImageIndexFile)
	}
	return d, v, errors.Join(err, a.Body.Close())
}

// newValidators returns the validators of a response. It returns ErrSame for status 304. If the response has an ETag, newValidators omits
// Last-Modified, to keep later requests short.
func newValidators(a *http.Response, last poll.Validators) (poll.Validators, error) {
	switch {
	case a.StatusCode == http.StatusNotModified && last.IsZero():
		return last, download.UnreachableError{Err: fmt.Errorf("the server answered %s to an unconditional request", a.Status)}
	case a.StatusCode == http.StatusNotModified:
		return last, ErrSame
	}
	v := poll.ValidatorsOf(a.Header)
	if v.ETag != "" {
		v.Modified = ""
	}
	return v, nil
}

// readSmall reads at most maxSmall bytes of a file whose digest is unknown. A larger file is an error.
func readSmall(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSmall+1))
	if err == nil && len(data) > maxSmall {
		err = fmt.Errorf("%s has more than %d bytes: it is not the file of a bundle", name, maxSmall)
	}
	return data, err
}

// A directory implements server for a bundle that a web server offers as separate files.
type directory struct {
	*Opener
	base  *url.URL
	index []byte
}

func (d *directory) address(name string) string {
	u := *d.base // keep the query: it may contain a token
	u.Path += name
	u.RawPath = ""
	return u.String()
}

func (d *directory) readFile(ctx context.Context, name string) ([]byte, error) {
	if name == ocispec.ImageIndexFile {
		return d.index, nil
	}
	a, err := d.get(ctx, d.address(name), 0, -1, poll.Validators{}, http.StatusOK)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer a.Body.Close()
	return readSmall(a.Body, name)
}

func (d *directory) fetch(ctx context.Context, blob ocispec.Descriptor, offset int64) (io.ReadCloser, int64, error) {
	name, err := format.BlobFile(blob.Digest)
	if err != nil {
		return nil, 0, err
	}
	a, err := d.get(ctx, d.address(name), offset, blob.Size-1, poll.Validators{}, http.StatusOK, http.StatusPartialContent)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", name, err)
	}
	if a.StatusCode == http.StatusOK {
		return a.Body, 0, nil
	}
	if err := checkRange(a, offset, blob.Size-1, blob.Size); err != nil {
		return nil, 0, errors.Join(err, a.Body.Close())
	}
	return a.Body, offset, nil
}

func (d *directory) Close() error {
	return nil // the client keeps its connection for the next request
}

// checkRange returns an error unless the Content-Range of the response is offset-last/size.
func checkRange(a *http.Response, offset, last, size int64) error {
	want := fmt.Sprintf("bytes %d-%d/%d", offset, last, size)
	if got := a.Header.Get("Content-Range"); got != want {
		return download.UnreachableError{Err: fmt.Errorf("the server answered with the range %.100q instead of %q", got, want)}
	}
	return nil
}

// parseRange parses the Content-Range of the response to the first request of a file. It returns the position of the last byte and the size
// of the file.
func parseRange(a *http.Response) (last, size int64, err error) {
	text := a.Header.Get("Content-Range")
	part, whole, found := strings.Cut(strings.TrimPrefix(text, "bytes 0-"), "/")
	if last, err = strconv.ParseInt(part, 10, 64); err == nil {
		size, err = strconv.ParseInt(whole, 10, 64)
	}
	if err != nil || !found || last < 0 || last >= firstPart || last >= size || last < min(firstPart, size)-1 {
		return 0, 0, download.UnreachableError{Err: fmt.Errorf("the server answered with the range %.100q instead of the first %d bytes",
			text, firstPart)}
	}
	return last, size, nil
}
