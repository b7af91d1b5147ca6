package response

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// A Stream is a response of unlimited length. Only each single write has a timeout.
type Stream struct {
	w          http.ResponseWriter
	c          *http.ResponseController
	idle       time.Duration
	statusSent bool // the status is sent or buffered
	lineOpen   bool // the last line is unfinished
}

// NewStream starts a response of unlimited length. The parameter idle is the timeout of a write, and contentType may be empty.
func NewStream(w http.ResponseWriter, contentType string, idle time.Duration) *Stream {
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
	}
	t := &Stream{w: w, c: http.NewResponseController(w), idle: idle}
	t.c.SetReadDeadline(time.Time{})
	t.c.SetWriteDeadline(time.Time{})
	return t
}

// Write writes b within the timeout.
func (t *Stream) Write(b []byte) (int, error) {
	t.statusSent, t.lineOpen = true, !bytes.HasSuffix(b, []byte{'\n'})
	t.c.SetWriteDeadline(time.Now().Add(t.idle))
	return t.w.Write(b)
}

// Flush sends buffered data.
func (t *Stream) Flush() error {
	t.statusSent = true
	t.c.SetWriteDeadline(time.Now().Add(t.idle))
	return t.c.Flush()
}

// HasBegun reports whether the status is sent or buffered, so that it can no longer be changed.
func (t *Stream) HasBegun() bool { return t.statusSent }

// Abort aborts the response, so that the client can see that it is incomplete.
func (t *Stream) Abort() { panic(http.ErrAbortHandler) }

// errFollowStopping is sent to clients that follow a log.
var errFollowStopping = errors.New("the agent is stopping; the container and its log continue")

// BreakOff ends an incomplete log. If the client requested a trailer (see api.TrailerError), BreakOff sends the reason as
// a trailer. If the agent is stopping, it sends such a client no trailer, but aborts the response.
//
// For any other client it appends the reason as the last line, as a kubelet does, and aborts the response. After the
// abort an API server ends its response to kubectl normally, so this line is all that kubectl shows about the error. If
// stamps is true, the line begins with the time, like every other line.
func (t *Stream) BreakOff(r *http.Request, stamps bool, err error) {
	stops := r.Context().Err() != nil
	if stops {
		t.idle, err = StopTimeout, errFollowStopping
	}
	if r.Header.Get(api.TrailerError) != "" {
		t.Flush()
		if stops {
			t.Abort()
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
	t.Abort()
}
