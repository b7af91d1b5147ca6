package image

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/containerd/errdefs"
)

const (
	// maxAnswerHeader bounds the headers of a registry's answer, in bytes.
	maxAnswerHeader = 256 << 10
	// maxToken bounds the answer of a token server, in bytes.
	maxToken = 1 << 20
)

// wholeKey marks a request whose answer is bounded by who reads it: a layer or a
// document with a descriptor.
type wholeKey struct{}

// modest is req with less to ask for: containerd offers to decode zstd, which may
// take any amount of memory.
func modest(req *http.Request) *http.Request {
	if !strings.Contains(req.Header.Get("Accept-Encoding"), "zstd") {
		return req
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept-Encoding", "gzip")
	return req
}

// bound ends the body of an answer where no answer of this kind has more, and
// fails for an answer in an encoding that was not asked for.
func bound(req *http.Request, res *http.Response) error {
	encodings := strings.FieldsFunc(strings.Join(res.Header.Values("Content-Encoding"), ","), func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
	if len(encodings) > 1 || len(encodings) == 1 && !strings.EqualFold(encodings[0], "gzip") && !strings.EqualFold(encodings[0], "identity") {
		return fmt.Errorf("%s answers with the content encoding %.100q, which it was not asked for: %w", req.URL.Host, encodings, errdefs.ErrInvalidArgument)
	}
	most := int64(maxManifest + 1)
	switch {
	case req.Context().Value(askingKey{}) != nil:
		most = maxToken
	case req.Context().Value(wholeKey{}) != nil:
		return nil
	}
	res.Body = &boundBody{ReadCloser: res.Body, left: most, most: most, host: req.URL.Host}
	return nil
}

// boundBody is a body that fails where it becomes too long.
type boundBody struct {
	io.ReadCloser
	left, most int64
	host       string
}

func (b *boundBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%s answers with more than %d bytes: %w", b.host, b.most, errdefs.ErrInvalidArgument)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
