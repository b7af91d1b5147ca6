package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// How long a command waits for an agent that says nothing. A stream is never silent
// for longer than a few seconds: the agent sends something now and then.
const (
	lookTime   = 20 * time.Second // to begin an answer to what is only looked at
	changeTime = time.Minute      // to begin an answer to a change
	silentTime = time.Minute      // between two pieces of a stream
)

var errSilent = errors.New("the agent says nothing")

// patience is how long an answer may take to begin.
func (t *tool) patience(method string) time.Duration {
	switch {
	case t.Patience > 0:
		return t.Patience
	case method == http.MethodGet:
		return lookTime
	}
	return changeTime
}

// A watchdog ends a context when the agent has said nothing, and accepted nothing,
// for too long.
type watchdog struct {
	timer *time.Timer
	after time.Duration
}

// watch returns a context with a watchdog; cancel ends both.
func (t *tool) watch(ctx context.Context) (context.Context, *watchdog, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{after: silentTime}
	if t.Patience > 0 {
		w.after = t.Patience
	}
	w.timer = time.AfterFunc(w.after, func() { cancel(errSilent) })
	return ctx, w, func() {
		w.timer.Stop()
		cancel(nil)
	}
}

// An answer is what the agent sends. Only the time in which somebody waits for it
// counts: a reader such as less may take as long as it likes.
type answer struct {
	io.Reader
	*watchdog
}

func (r answer) Read(b []byte) (int, error) {
	r.timer.Reset(r.after)
	defer r.timer.Stop()
	return r.Reader.Read(b)
}

// An upload is what is sent to the agent. What counts is the time that it takes to
// accept a piece, not the time until there is one.
type upload struct {
	io.Reader
	*watchdog
}

func (r upload) Read(b []byte) (int, error) {
	r.timer.Stop()
	defer r.timer.Reset(r.after)
	return r.Reader.Read(b)
}
