package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/islet-edge/islet/agent/cli/command"
)

// Timeouts for an agent that sends nothing. The agent sends keep-alive lines in a stream every few seconds.
const (
	readTimeout    = 20 * time.Second // until the response to a read request begins
	changeTimeout  = time.Minute      // until the response to a change request begins
	SilenceTimeout = time.Minute      // between two parts of a stream
)

var errSilent = errors.New("the agent does not respond")

// ResponseTimeout returns the timeout for the beginning of a response.
func ResponseTimeout(t *command.Tool, method string) time.Duration {
	switch {
	case t.ResponseTimeout > 0:
		return t.ResponseTimeout
	case method == http.MethodGet:
		return readTimeout
	}
	return changeTimeout
}

// A watchdog cancels a context if the agent has neither sent nor accepted any data for too long.
type watchdog struct {
	timer   *time.Timer
	timeout time.Duration
}

// newWatchdog returns a context, the watchdog of this context, and a function that stops the watchdog and cancels the
// context.
func newWatchdog(ctx context.Context, t *command.Tool) (context.Context, *watchdog, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watchdog{timeout: SilenceTimeout}
	if t.ResponseTimeout > 0 {
		w.timeout = t.ResponseTimeout
	}
	w.timer = time.AfterFunc(w.timeout, func() { cancel(errSilent) })
	return ctx, w, func() {
		w.timer.Stop()
		cancel(nil)
	}
}

// A responseBody is the body of the agent's response. Its timeout counts only the time in Read, because a reader such as
// less may pause for any time between two reads.
type responseBody struct {
	io.Reader
	*watchdog
}

func (r responseBody) Read(b []byte) (int, error) {
	r.timer.Reset(r.timeout)
	defer r.timer.Stop()
	return r.Reader.Read(b)
}

// An upload is the body of a request. Its timeout counts only the time until the agent has accepted a part of the
// body. It does not count the time in Read.
type upload struct {
	io.Reader
	*watchdog
}

func (r upload) Read(b []byte) (int, error) {
	r.timer.Stop()
	defer r.timer.Reset(r.timeout)
	return r.Reader.Read(b)
}
