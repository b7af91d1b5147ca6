package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/probe/call"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
)

// Reasons of events.
const (
	eventUnhealthy = "Unhealthy"
	eventWarning   = "ProbeWarning"
)

// maxMessage is how many bytes of an answer an event contains at most.
const maxMessage = 1 << 10

// tries is how often a call is made if there is an error instead of an answer.
const tries = 3

// A question is one call to make.
type question struct {
	kind    kind
	spec    *v1.Probe
	target  call.Target
	timeout time.Duration
}

// An answer is the result of a call. With an error it says nothing about the container.
type answer struct {
	verdict verdict
	warning bool
	output  string
	err     error
}

// ask makes a call, and repeats it after an error. A panic is an error of this call.
func (p *Probes) ask(ctx context.Context, q question) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			p.cfg.Log.Error("probe panicked", "container", q.target.ID, "panic", r, "stack", string(debug.Stack()))
			a = answer{err: fmt.Errorf("it panicked: %v", r)}
		}
	}()
	for range tries {
		if a = p.try(ctx, q); a.err == nil || ctx.Err() != nil {
			break
		}
	}
	return a
}

func (p *Probes) try(ctx context.Context, q question) answer {
	switch {
	case q.spec.Exec != nil:
		out, err := p.cfg.Caller.Exec(ctx, q.target.ID, expand(q.spec.Exec.Command, q.target.Container.Env), q.timeout)
		if _, exited := errors.AsType[*call.ExitError](err); exited {
			return answer{verdict: failed, output: string(out)}
		}
		if errors.Is(err, call.ErrTimedOut) {
			return answer{verdict: failed, output: err.Error()}
		}
		if err != nil {
			return answer{err: err}
		}
		return answer{verdict: passed}
	case q.spec.HTTPGet != nil:
		resp, err := p.cfg.Caller.Get(ctx, q.target, q.spec.HTTPGet, call.Probe, q.timeout)
		switch {
		case err != nil:
			return reached(err)
		case resp.Code < http.StatusOK || resp.Code >= http.StatusBadRequest: // the body may be secret
			return answer{verdict: failed, output: fmt.Sprintf("HTTP probe failed with statuscode: %d", resp.Code)}
		case resp.Code >= http.StatusMultipleChoices:
			return answer{verdict: passed, warning: true, output: "Probe terminated redirects, Response body: " + resp.Body}
		}
		return answer{verdict: passed}
	case q.spec.TCPSocket != nil:
		return reached(p.cfg.Caller.Connect(ctx, q.target, q.spec.TCPSocket, q.timeout))
	case q.spec.GRPC != nil:
		return reached(p.cfg.Caller.Check(ctx, q.target, q.spec.GRPC, q.timeout))
	}
	return answer{err: errors.New("missing probe handler")}
}

// reached returns the answer of a call over the network. No answer is a failure of the container, but not if the call could
// not be made, or if the answer broke off.
func reached(err error) answer {
	switch {
	case err == nil:
		return answer{verdict: passed}
	case errors.Is(err, call.ErrBroken):
		return answer{verdict: failed, err: err}
	case errors.Is(err, call.ErrInvalid):
		return answer{err: err}
	}
	return answer{verdict: failed, output: err.Error()}
}

// expand replaces variables by their values in the manifest. The environment of the running container is not known here.
func expand(command []string, env []v1.EnvVar) []string {
	value := func(name string) (value string, ok bool) {
		for _, e := range env {
			if e.Name == name {
				value, ok = e.Value, true
			}
		}
		return value, ok
	}
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = translate.Expand(word, value)
	}
	return out
}

// record records an event of an answer that is not plain success. A failure that does not count, because the container has
// only just started, is not recorded.
func (p *Probes) record(c *check, a answer, early bool) {
	var reason, message string
	switch state := map[verdict]string{none: "unknown", passed: "unknown", failed: "failure"}[a.verdict]; {
	case a.err != nil:
		reason, message = eventUnhealthy, fmt.Sprintf("%s probe errored and resulted in %s state: %s", c.kind, state, a.err)
	case a.warning:
		reason, message = eventWarning, fmt.Sprintf("%s probe warning: %s", c.kind, a.output)
	case a.verdict == failed && !early:
		reason, message = eventUnhealthy, fmt.Sprintf("%s probe failed: %s", c.kind, a.output)
	default:
		return
	}
	p.cfg.Log.Debug("probe", "pod", c.pod.Namespace+"/"+c.pod.Name, "uid", c.uid, "container", c.container, "result", message)
	p.cfg.Events.Pod(c.pod, c.container, v1.EventTypeWarning, reason, strings.ToValidUTF8(message[:min(len(message), maxMessage)], ""))
}
