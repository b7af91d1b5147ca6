package kube

import (
	"io"
	"net/http"
)

// bounded gives the body of an answer, which is read into memory whole, an end: however
// long it is, and however well it was compressed. The bytes count against the budget of all
// answers. The events of a watch go on for ever; each of them is bounded where it is read.
func bounded(req *http.Request, resp *http.Response) io.ReadCloser {
	if req.URL.Query().Get("watch") == "true" && resp.StatusCode < http.StatusMultipleChoices {
		return resp.Body
	}
	b := &boundedBody{ReadCloser: resp.Body, most: mostAnswer}
	if resp.StatusCode >= http.StatusMultipleChoices {
		b.most = mostFailure
	}
	b.p, _ = req.Context().Value(ownProgress{}).(*patient)
	return b
}

type boundedBody struct {
	io.ReadCloser
	read, most int      // bytes
	p          *patient // nil: the request has none
}

// Read fails with errTooLong. It waits while other answers take the memory of this one.
func (b *boundedBody) Read(data []byte) (int, error) {
	if b.p == nil {
		data = data[:min(len(data), freeAnswer)]
	} else if err := b.p.hold(b.read + len(data)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(data)
	if b.read += n; b.read > b.most || b.p == nil && b.read > freeAnswer {
		return 0, errTooLong
	}
	return n, err
}
