package response

import (
	"io"
	"net/http"
	"time"
)

// stallTimeout is the timeout of a read from the body of a request.
const stallTimeout = 2 * time.Minute

// EnableFullDuplex allows the handler to read the body of the request after the response has begun.
func (t *Stream) EnableFullDuplex() { t.c.EnableFullDuplex() }

// BodyReader returns a reader of the body of the request. The client may pause at most for stallTimeout.
func (t *Stream) BodyReader(body io.Reader) io.Reader { return stallReader{body, t.c} }

// stallReader reads the body of a request. The client may pause at most for stallTimeout.
type stallReader struct {
	body io.Reader
	c    *http.ResponseController
}

func (s stallReader) Read(b []byte) (int, error) {
	s.c.SetReadDeadline(time.Now().Add(stallTimeout))
	n, err := s.body.Read(b)
	if err != nil { // net/http continues to read, to detect that the client has disconnected
		s.c.SetReadDeadline(time.Time{})
	}
	return n, err
}
