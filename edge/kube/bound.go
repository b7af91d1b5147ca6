package kube

import (
	"fmt"
	"io"
	"net/http"
)

// errTooLong ends an answer of more than mostBytes.
var errTooLong = fmt.Errorf("the server's answer is longer than %d MiB", mostBytes>>20)

// bounded gives the body of an answer, which is read into memory whole, an end: however
// long it is, and however well it was compressed. The events of a watch go on for ever;
// client-go bounds each of them.
func bounded(req *http.Request, body io.ReadCloser) io.ReadCloser {
	if req.URL.Query().Get("watch") == "true" {
		return body
	}
	return &boundedBody{ReadCloser: body, left: mostBytes}
}

type boundedBody struct {
	io.ReadCloser
	left int // bytes
}

// Read fails with errTooLong.
func (b *boundedBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	if b.left -= n; b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
