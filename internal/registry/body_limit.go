package registry

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
)

const (
	// MaxManifest is the maximum size of an index or a manifest, in bytes. Registries accept 4 MiB.
	MaxManifest = 4 << 20
	// MaxHeader is the maximum size of the headers of a registry's response, in bytes.
	MaxHeader = 256 << 10
	// maxToken is the maximum size of a token server's response, in bytes.
	maxToken = 1 << 20
)

// limitedByReader is the context key that WithReaderLimit sets.
type limitedByReader struct{}

// WithReaderLimit returns a context for a request whose response LimitBody does not limit. Use it for a layer, or for a document whose
// descriptor is known, because the reader of such a response stops at the size in the descriptor.
func WithReaderLimit(ctx context.Context) context.Context {
	return context.WithValue(ctx, limitedByReader{}, true)
}

// progressKey is the context key that WithProgress sets.
type progressKey struct{}

// WithProgress returns a context for requests. LimitBody makes each Read of their responses call the function moved if it has read bytes.
// A reader of containerd may discard many bytes before it returns from its first Read, if a registry ignores the offset of a request.
func WithProgress(ctx context.Context, moved func()) context.Context {
	return context.WithValue(ctx, progressKey{}, moved)
}

// A progressBody is the body of a response to a request with a context of WithProgress.
type progressBody struct {
	io.ReadCloser
	moved func()
}

func (b progressBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.moved()
	}
	return n, err
}

// PrepareRequest returns the request to send instead of req, without secrets and encodings that must not be sent. It returns an error if
// req would send a secret to the wrong server and is useless without the secret. The caller passes the response to LimitBody.
func PrepareRequest(req *http.Request) (*http.Request, error) {
	return checkTokenRequest(withoutZstd(req))
}

// withoutZstd removes zstd from the encodings that a request accepts. containerd's client accepts
// zstd, but decoding it may need an unlimited amount of memory.
func withoutZstd(req *http.Request) *http.Request {
	if !strings.Contains(req.Header.Get("Accept-Encoding"), "zstd") {
		return req
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "gzip")
	return req
}

// LimitBody limits the body of a response to the maximum for its kind. It returns an error if the
// response has a content encoding that was not requested.
func LimitBody(req *http.Request, res *http.Response) error {
	encodings := strings.FieldsFunc(strings.Join(res.Header.Values("Content-Encoding"), ","), func(r rune) bool {
		return r == ' ' || r == '\t' || r == ','
	})
	supported := func(e string) bool { return strings.EqualFold(e, "gzip") || strings.EqualFold(e, "identity") }
	if len(encodings) > 1 || len(encodings) == 1 && !supported(encodings[0]) {
		return fmt.Errorf("%s answers with the content encoding %.100q, which was not requested: %w",
			req.URL.Host, encodings, errdefs.ErrInvalidArgument)
	}
	if moved, ok := req.Context().Value(progressKey{}).(func()); ok {
		res.Body = progressBody{res.Body, moved}
	}
	most := int64(MaxManifest + 1)
	switch {
	case req.Context().Value(tokenRequestKey{}) != nil:
		most = maxToken
	case req.Context().Value(limitedByReader{}) != nil:
		return nil
	}
	res.Body = &limitedBody{ReadCloser: res.Body, left: most, most: most, host: req.URL.Host}
	return nil
}

// A limitedBody is the body of a response, with a maximum number of bytes. After that number, Read fails.
type limitedBody struct {
	io.ReadCloser
	left, most int64
	host       string
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%s answers with more than %d bytes: %w", b.host, b.most, errdefs.ErrInvalidArgument)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
