package server

import (
	"encoding/json"
	"net/http"
	"time"
)

// A stream is an answer that goes on for as long as the client takes it: each
// write has StreamIdleTimeout to get through.
type stream struct {
	w     http.ResponseWriter
	c     *http.ResponseController
	idle  time.Duration
	begun bool // the client has, or soon gets, its status: another one is too late
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
	t.begun = true
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
