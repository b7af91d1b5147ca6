package kube

import (
	"io"
	"net/http"
)

// limitBody limits the size of an answer's body after decompression, because the client reads the body into memory. The body uses a part of
// the AnswerBudget. The body of a watch is not limited here, because each of its events is limited.
func limitBody(req *http.Request, resp *http.Response) io.ReadCloser {
	if req.URL.Query().Get("watch") == "true" && resp.StatusCode < http.StatusMultipleChoices {
		return resp.Body
	}
	b := &boundedBody{ReadCloser: resp.Body, limit: maxAnswer}
	if resp.StatusCode >= http.StatusMultipleChoices {
		b.limit = maxFailure
	}
	b.p, _ = req.Context().Value(ownProgress{}).(*requestTimeouts)
	return b
}

type boundedBody struct {
	io.ReadCloser
	read, limit int              // bytes
	p           *requestTimeouts // nil if the request does not track progress
}

// Read returns errTooLong if the body exceeds the limit. It blocks while other answers use up the budget.
func (b *boundedBody) Read(data []byte) (int, error) {
	if b.p == nil {
		data = data[:min(len(data), freeAnswer)]
	} else if err := b.p.acquireBytes(b.read + len(data)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(data)
	if b.read += n; b.read > b.limit || b.p == nil && b.read > freeAnswer {
		return 0, errTooLong
	}
	return n, err
}
