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

// A stream is a response of unlimited length. Only each single write has a timeout, StreamIdleTimeout.
type stream struct {
	w          http.ResponseWriter
	c          *http.ResponseController
	idle       time.Duration
	statusSent bool // the status is sent or buffered, so it can no longer be changed
	lineOpen   bool // the last line is unfinished
}

// stream starts a response of unlimited length.
func (s *Server) stream(w http.ResponseWriter, contentType string) *stream {
	w.Header().Set("Content-Type", contentType)
	return s.newStream(w)
}

func (s *Server) newStream(w http.ResponseWriter) *stream {
	t := &stream{w: w, c: http.NewResponseController(w), idle: s.StreamIdleTimeout}
	t.c.SetReadDeadline(time.Time{})
	t.c.SetWriteDeadline(time.Time{})
	return t
}

// Write writes b within the timeout.
func (t *stream) Write(b []byte) (int, error) {
	t.statusSent, t.lineOpen = true, !bytes.HasSuffix(b, []byte{'\n'})
	t.c.SetWriteDeadline(time.Now().Add(t.idle))
	return t.w.Write(b)
}

// Flush sends buffered data.
func (t *stream) Flush() error {
	t.statusSent = true
	t.c.SetWriteDeadline(time.Now().Add(t.idle))
	return t.c.Flush()
}

// abort aborts the response, so that the client can see that it is incomplete.
func (t *stream) abort() { panic(http.ErrAbortHandler) }

// errFollowStopping is sent to clients that follow a log.
var errFollowStopping = errors.New("the agent is stopping; the container and its log continue")

// breakOff ends an incomplete log. If the client requested a trailer (see api.TrailerError), breakOff sends the reason as
// a trailer. If the agent is stopping, it sends such a client no trailer, but aborts the response.
//
// For any other client it appends the reason as the last line, as a kubelet does, and aborts the response. After the
// abort an API server ends its response to kubectl normally, so this line is all that kubectl shows about the error. If
// stamps is true, the line begins with the time, like every other line.
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
	if t.lineOpen {
		begin = "\n"
	}
	if stamps {
		begin += time.Now().UTC().Format(time.RFC3339Nano) + " "
	}
	fmt.Fprintf(t, "%sislet: the log is not complete: %v\n", begin, err)
	t.Flush()
	t.abort()
}

// lines is a stream of JSON values. Each line has one value.
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
