package probe

import (
	"context"
	"errors"
	"fmt"
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

// maxMessage is the maximum length of an event's message, in bytes.
const maxMessage = 1 << 10

// maxTries is the maximum number of attempts of a call. A call is repeated only if it returns an error instead of an
// answer.
const maxTries = 3

// A question contains the arguments of one call of a probe.
type question struct {
	kind    kind
	spec    *v1.Probe
	target  call.Target
	timeout time.Duration
}

// An answer is the result of a call. If err is set, the state of the container is unknown.
type answer struct {
	verdict verdict
	warning bool
	output  string
	err     error
}

// callProbe makes a call and retries it after an error. A panic is reported as an error of this call.
func (p *Probes) callProbe(ctx context.Context, q question) (a answer) {
	defer func() {
		if r := recover(); r != nil {
			p.cfg.Log.Error("probe panicked", "container", q.target.ID, "panic", r, "stack", string(debug.Stack()))
			a = answer{err: fmt.Errorf("it panicked: %v", r)}
		}
	}()
	for range maxTries {
		if a = p.runProbe(ctx, q); a.err == nil || ctx.Err() != nil {
			break
		}
	}
	return a
}

func (p *Probes) runProbe(ctx context.Context, q question) answer {
	switch {
	case q.spec.Exec != nil:
		out, err := p.cfg.Caller.Exec(ctx, q.target.ID, expandCommand(q.spec.Exec.Command, q.target.Container.Env), q.timeout)
		if _, exited := errors.AsType[*call.ExitError](err); exited {
			return answer{verdict: failedVerdict, output: string(out)}
		}
		if errors.Is(err, call.ErrTimedOut) {
			return answer{verdict: failedVerdict, output: err.Error()}
		}
		if err != nil {
			return answer{err: err}
		}
		return answer{verdict: passedVerdict}
	case q.spec.HTTPGet != nil:
		resp, err := p.cfg.Caller.Get(ctx, q.target, q.spec.HTTPGet, call.Probe, q.timeout)
		if err != nil {
			return networkAnswer(err)
		}
		return httpAnswer(resp)
	case q.spec.TCPSocket != nil:
		return networkAnswer(p.cfg.Caller.Connect(ctx, q.target, q.spec.TCPSocket, q.timeout))
	case q.spec.GRPC != nil:
		return networkAnswer(p.cfg.Caller.Check(ctx, q.target, q.spec.GRPC, q.timeout))
	}
	return answer{err: errors.New("missing probe handler")}
}

// networkAnswer converts the result of a network call to an answer. If the server did not respond, the probe
// has failed. If the call could not be made, or the connection failed during the response, the answer
// contains an error.
func networkAnswer(err error) answer {
	switch {
	case err == nil:
		return answer{verdict: passedVerdict}
	case errors.Is(err, call.ErrBroken):
		return answer{verdict: failedVerdict, err: err}
	case errors.Is(err, call.ErrInvalid):
		return answer{err: err}
	}
	return answer{verdict: failedVerdict, output: err.Error()}
}

// expandCommand replaces variables with the values in the container's manifest. The agent does not know the environment of the
// running container.
func expandCommand(command []string, env []v1.EnvVar) []string {
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

// recordEvent records an event if an answer is an error, a warning or a failure. While the container is still starting
// (early), it ignores a failure.
func (p *Probes) recordEvent(c *check, a answer, early bool) {
	var reason, message string
	switch state := map[verdict]string{noVerdict: "unknown", passedVerdict: "unknown", failedVerdict: "failure"}[a.verdict]; {
	case a.err != nil:
		reason, message = eventUnhealthy, fmt.Sprintf("%s probe errored and resulted in %s state: %s", c.kind, state, a.err)
	case a.warning:
		reason, message = eventWarning, fmt.Sprintf("%s probe warning: %s", c.kind, a.output)
	case a.verdict == failedVerdict && !early:
		reason, message = eventUnhealthy, fmt.Sprintf("%s probe failed: %s", c.kind, a.output)
	default:
		return
	}
	p.cfg.Log.Debug("probe", "pod", c.pod.Namespace+"/"+c.pod.Name, "uid", c.uid, "container", c.container, "result", message)
	p.cfg.Events.Pod(c.pod, c.container, v1.EventTypeWarning, reason, strings.ToValidUTF8(message[:min(len(message), maxMessage)], ""))
}
