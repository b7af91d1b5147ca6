package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// A stream is a response of unlimited length: each write has to complete within StreamIdleTimeout.
type stream struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	idle  time.Duration
	begun bool // the status has been sent or is buffered: it cannot be changed any more
	open  bool // the last line is unfinished
}

// stream starts a response of unlimited length.
func (s *Server) stream(w http.ResponseWriter, contentType string) *stream {
	w.Header().Set("Content-Type", contentType)
	return s.steady(w)
}

func (s *Server) steady(w http.ResponseWriter) *stream {
	t := &stream{w: w, c: http.NewResponseController(w), idle: s.StreamIdleTimeout}
	t.c.SetReadDeadline(time.Time{})
	t.c.SetWriteDeadline(time.Time{})
	return t
}

// Write writes b within the timeout.
func (t *stream) Write(b []byte) (int, error) {
	t.begun, t.open = true, !bytes.HasSuffix(b, []byte{'\n'})
	t.c.SetWriteDeadline(time.Now().Add(t.idle))
	return t.w.Write(b)
}

// Flush sends buffered data.
func (t *stream) Flush() error {
	t.begun = true
	t.c.SetWriteDeadline(time.Now().Add(t.idle))
	return t.c.Flush()
}

// abort aborts the response, so that the client can see that it is incomplete.
func (t *stream) abort() { panic(http.ErrAbortHandler) }

// errFollowStopping is sent to clients that follow a log.
var errFollowStopping = errors.New("the agent is stopping; the container and its log continue")

// breakOff ends an incomplete log. A client that requested it (see api.TrailerError) gets the
// reason as a trailer; when the agent stops, the response is aborted.
//
// For any other client the last line contains the reason, as with a kubelet, and then the response
// is aborted. An API server hides the abort and ends its own response normally, so the line is all
// that kubectl shows. With stamps it begins with the time, like every line.
func (t *stream) breakOff(r *http.Request, stamps bool, err error) {
	stops := r.Context().Err() != nil
	if stops {
		t.idle, err = stopTimeout, errFollowStopping
	}
	if r.Header.Get(api.TrailerError) != "" {
		t.Flush()
		if stops {
			t.abort()
		}
		t.w.Header().Set(http.TrailerPrefix+api.TrailerError, err.Error())
		return
	}
	begin := ""
	if t.open {
		begin = "\n"
	}
	if stamps {
		begin += time.Now().UTC().Format(time.RFC3339Nano) + " "
	}
	fmt.Fprintf(t, "%sislet: the log is not complete: %v\n", begin, err)
	t.Flush()
	t.abort()
}

// lines is a stream of JSON values, one per line.
type lines struct {
	*stream
	enc *json.Encoder
	err error // the first error; nothing is sent after it
}

func (s *Server) lines(w http.ResponseWriter, _ *http.Request) *lines {
	t := s.stream(w, "application/x-ndjson")
	return &lines{stream: t, enc: json.NewEncoder(t)}
}

func (l *lines) send(v any) {
	if l.err == nil {
		l.err = l.enc.Encode(v)
	}
	if l.err == nil {
		l.err = l.Flush()
	}
}
