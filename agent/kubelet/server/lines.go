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

// A stream is an answer that goes on for as long as the client takes it: each
// write has StreamIdleTimeout to get through.
type stream struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	idle  time.Duration
	begun bool // the client has, or soon gets, its status: another one is too late
	open  bool // the last line has no end yet
}

// stream begins an answer without end.
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

// Write writes b within the time allowed.
func (t *stream) Write(b []byte) (int, error) {
	t.begun, t.open = true, !bytes.HasSuffix(b, []byte{'\n'})
	t.c.SetWriteDeadline(time.Now().Add(t.idle))
	return t.w.Write(b)
}

// Flush sends what was written.
func (t *stream) Flush() error {
	t.begun = true
	t.c.SetWriteDeadline(time.Now().Add(t.idle))
	return t.c.Flush()
}

// abort breaks the answer off, so that the client can tell it from a whole one.
func (t *stream) abort() { panic(http.ErrAbortHandler) }

// errFollowStopping is what clients get that follow a log.
var errFollowStopping = errors.New("the agent stops; the container goes on, and so does its log")

// breakOff ends a log that is not whole. A client that asks for it (see api.TrailerError) gets the
// reason as a trailer; when the agent stops, its answer breaks off.
//
// The last line of any other client's answer says the reason, as that of a kubelet does, and then the
// answer breaks off. An API server hides that: it ends its own answer as if this one were whole. So
// the line is all that kubectl learns. With stamps it begins with the time, as every line does.
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

// lines is a stream of JSON values, one a line.
type lines struct {
	*stream
	enc *json.Encoder
	err error // the first, after which nothing is sent
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
