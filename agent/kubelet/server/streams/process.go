package streams

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/islet-edge/islet/runtime/cri"
)

// A process is the target of an exec or attach request.
type process struct {
	cri.Streamer
	id      string   // ID of the container
	command []string // nil for attach
	options remotecommand.Options
}

// ErrStopping is the cause of a request's context when the agent stops. It is sent to the client. Without an error, some
// clients treat the end of the connection as a success.
var ErrStopping = errors.New("the agent is stopping; the command was ended")

// run connects the streams until the process or ctx has ended. ctx ends when the client disconnects, after
// the idle timeout, and when the agent stops. In the last two cases run returns the cause. For attach, run
// ignores the exit code of the container's own process.
func (p *process) run(ctx context.Context, o cri.ExecOptions) error {
	o.Command, o.TTY = p.command, p.options.TTY
	err := p.Stream(ctx, p.id, o)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if p.command == nil && errors.As(err, &cri.ExitError{}) {
		return nil
	}
	return err
}

// statusText encodes the result of a process for the client. Since v4 of the protocol the encoded result is a JSON object.
// Before v4 it is the text of the error.
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

// sizes is a channel for the sizes of a terminal. It contains only the newest size.
type sizes chan cri.TerminalSize

func newSizes() sizes { return make(sizes, 1) }

// sendSize decodes one size and sends it to the channel. It must not be called concurrently.
func (s sizes) sendSize(dec *json.Decoder) error {
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

// maxSizes is the maximum length of all messages with terminal sizes in one session.
const maxSizes = 1 << 20

// readAll sends each size in the stream to the channel. It closes the channel when the stream ends.
func (s sizes) readAll(r io.Reader) {
	defer close(s)
	for dec := json.NewDecoder(io.LimitReader(r, maxSizes)); s.sendSize(dec) == nil; {
	}
}
