package podstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/terminal"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/printable"
)

// Watch calls the function check with all pods of the node. It repeats the call after each change of a pod, until
// the function returns true or an error. After the timeout it returns ErrTimeout. With timeout 0 it calls check once.
//
// If the agent stops after the first call of check, for example for an update, Watch waits for the agent
// until the timeout.
func Watch(ctx context.Context, t *command.Tool, timeout time.Duration, check func(pods []*v1.Pod) (done bool, err error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := podWatch{check: check, once: timeout == 0, begin: func() {
		if timeout > 0 { // the timeout begins with the first call, so that a slow agent does not use up the time before it
			timer := time.AfterFunc(timeout, func() { cancel(ErrTimeout) })
			context.AfterFunc(ctx, func() { timer.Stop() })
		}
	}}
	for {
		w.known, w.order, w.synced = map[types.UID]*v1.Pod{}, nil, false
		err := client.Stream(ctx, t, http.MethodGet, api.PathPods, nil, nil, w.handle)
		if errors.Is(context.Cause(ctx), ErrTimeout) {
			return ErrTimeout
		}
		if !command.IsUnreachable(err) || !w.checked {
			return err
		}
		if !w.lost {
			w.lost = true
			fmt.Fprintf(t.Stderr, "islet: lost the connection to the agent at %s: waiting for the agent\n", t.Socket)
		}
		select {
		case <-ctx.Done():
		case <-time.After(client.PollInterval):
		}
	}
}

// A podWatch holds the pods that the agent has sent.
type podWatch struct {
	check   func([]*v1.Pod) (bool, error)
	once    bool   // return ErrTimeout after the first check
	begin   func() // is called before the first call of check
	known   map[types.UID]*v1.Pod
	order   []types.UID // in the order in which the agent has sent the pods
	synced  bool        // all pods have been received
	checked bool        // check was called
	lost    bool        // the message about a lost agent was printed
}

func (w *podWatch) handle(e api.PodEvent) (bool, error) {
	switch {
	case e.Type == "SYNCED":
		w.synced = true
	case e.Pod == nil:
		return false, nil
	case e.Type == "DELETED":
		delete(w.known, e.Pod.UID)
		w.order = slices.DeleteFunc(w.order, func(uid types.UID) bool { return uid == e.Pod.UID })
	default:
		if w.known[e.Pod.UID] == nil {
			w.order = append(w.order, e.Pod.UID)
		}
		w.known[e.Pod.UID] = e.Pod
	}
	if !w.synced {
		return false, nil
	}
	if !w.checked {
		w.checked = true
		w.begin()
	}
	done, err := w.check(w.pods())
	if !done && err == nil && w.once {
		err = ErrTimeout
	}
	return done, err
}

// pods returns the known pods in the order of the agent.
func (w *podWatch) pods() (out []*v1.Pod) {
	for _, uid := range w.order {
		out = append(out, w.known[uid])
	}
	return out
}

// Explain returns the status of a pod as islet pods shows it, and the message of the container that
// causes this status.
func Explain(pod *v1.Pod, now time.Time) string {
	status := Summarize(pod, now).Status
	message := pod.Status.Message
	for st := range podspec.Statuses(&pod.Status) {
		switch {
		case st.State.Waiting != nil && st.State.Waiting.Message != "":
			message = st.State.Waiting.Message
		case st.State.Terminated != nil && st.State.Terminated.ExitCode != 0:
			message = cmp.Or(st.State.Terminated.Message, fmt.Sprintf("container %s ended with exit code %d",
				st.Name, st.State.Terminated.ExitCode))
		default:
			continue
		}
		break
	}
	if message == "" {
		return status
	}
	return printable.Line(terminal.ShortenEnd(fmt.Sprintf("%s (%s", status, message), MaxReason)) + ")"
}

// MaxReason is the maximum width of a status with its message.
const MaxReason = 300

// ErrTimeout is the error of Watch after its timeout.
var ErrTimeout = errors.New("timeout")

// MaxWait is the time for which kubectl waits if the timeout is negative.
const MaxWait = 7 * 24 * time.Hour
