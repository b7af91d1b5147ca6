package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/islet-edge/islet/runtime/cri"
)

// A process is the target of an exec or attach.
type process struct {
	cri.Streamer
	id      string   // of the container
	command []string // empty: attach
	wants   remotecommand.Options
}

// errStopping is the cause of a request's context when the agent stops. It is sent to clients, because
// some treat a connection that just ends as success.
var errStopping = errors.New("the agent is stopping; the command was ended")

// idleError is the cause of a session's context after the idle timeout. It is sent to clients, too.
func idleError(timeout time.Duration) error {
	return fmt.Errorf("the session was closed because nothing was sent or received for %v (streamingConnectionIdleTimeout)", timeout)
}

// run connects the streams until the process has ended, or ctx has: the client has disconnected, the
// session was idle for too long, or the agent stops. It returns the cause of the last two. For an
// attach it ignores the exit code of the container's own process.
func (p *process) run(ctx context.Context, o cri.ExecOptions) error {
	o.Command, o.TTY = p.command, p.wants.TTY
	err := p.Stream(ctx, p.id, o)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if p.command == nil && errors.As(err, &cri.ExitError{}) {
		return nil
	}
	return err
}

// statusText encodes a process's result: as JSON since v4 of the protocol, before as an error text.
func statusText(err error, v4 bool) []byte {
	if !v4 {
		if err == nil {
			return nil
		}
		return []byte(err.Error())
	}
	data, _ := json.Marshal(statusFor(err))
	return data
}

func statusFor(err error) metav1.Status {
	var exit cri.ExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &exit):
		return metav1.Status{
			Status:  metav1.StatusFailure,
			Reason:  remotecommand.NonZeroExitCodeReason,
			Message: "command terminated with non-zero exit code: " + err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(int(exit.Code))}}},
		}
	}
	return metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError,
		Message: err.Error(), Code: http.StatusInternalServerError}
}

// sizes passes on the sizes of a terminal, keeping only the newest.
type sizes chan cri.TerminalSize

func newSizes() sizes { return make(sizes, 1) }

// read reads one size; it must not be called concurrently.
func (s sizes) read(dec *json.Decoder) error {
	var size cri.TerminalSize
	if err := dec.Decode(&size); err != nil {
		return err
	}
	select {
	case <-s:
	default:
	}
	s <- size
	return nil
}

// maxSizes bounds the bytes of terminal sizes in one session.
const maxSizes = 1 << 20

// readAll reads sizes until their stream ends.
func (s sizes) readAll(r io.Reader) {
	defer close(s)
	for dec := json.NewDecoder(io.LimitReader(r, maxSizes)); s.read(dec) == nil; {
	}
}
