package image

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
)

const (
	// maxAnswerHeader is the maximum size of the headers of a registry's response, in bytes.
	maxAnswerHeader = 256 << 10
	// maxToken is the maximum size of a token server's response, in bytes.
	maxToken = 1 << 20
)

// limitedByReader is the context key of a request whose reader limits the length of the response. This is
// a request for a layer, or for a document with a descriptor.
type limitedByReader struct{}

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

// limitBody limits the body of a response to the maximum for its kind. It returns an error if the
// response has a content encoding that was not requested.
func limitBody(req *http.Request, res *http.Response) error {
	encodings := strings.FieldsFunc(strings.Join(res.Header.Values("Content-Encoding"), ","), func(r rune) bool {
		return r == ' ' || r == '\t' || r == ','
	})
	supported := func(e string) bool { return strings.EqualFold(e, "gzip") || strings.EqualFold(e, "identity") }
	if len(encodings) > 1 || len(encodings) == 1 && !supported(encodings[0]) {
		return fmt.Errorf("%s answers with the content encoding %.100q, which was not requested: %w",
			req.URL.Host, encodings, errdefs.ErrInvalidArgument)
	}
	most := int64(maxManifest + 1)
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
