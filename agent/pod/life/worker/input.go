package worker

import (
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// gather reads what the other parts of the agent know of the pod. It changes nothing.
func (w *worker) gather() plan.Input {
	cfg := &w.set.cfg
	wanted, ok := cfg.Desired.Get(w.uid)
	in := plan.Input{
		UID: w.uid, Want: wanted.Pod, Deleting: wanted.Deleting, Grace: wanted.Grace, Lives: uint32(wanted.Lives),
		Waiting: wanted.Waiting != "", Admitted: wanted.Admitted, End: wanted.End, Reconsider: wanted.Reconsider,
		Undecided: wanted.Undecided, Pending: wanted.Pending,
		Seen: cfg.View.Pod(w.uid), CrashMax: cfg.CrashMax,
	}
	if cfg.Dead != nil {
		in.Dead = cfg.Dead()
	}
	in.Health, in.Hooked = cfg.Health(in.Want, in.Seen), hooked(in.Seen, cfg.Hooked)
	switch {
	case !ok:
		in.Want, in.Grace = nil, defaultGrace
		for _, sb := range in.Seen.Sandboxes {
			in.Hold = in.Hold || !cfg.Desired.Spoken(sb.Source)
		}
	case !in.Deleting:
		in.Grace = defaultGrace
		if g := in.Want.Spec.TerminationGracePeriodSeconds; g != nil {
			in.Grace = time.Duration(*g) * time.Second
		}
	}
	if in.End != nil && in.End.Grace > 0 {
		in.Grace = min(in.Grace, in.End.Grace)
	}
	if in.Want != nil {
		var most time.Duration
		if in.Off, most = cfg.Off(in.Want); !in.Off.IsZero() {
			in.Grace = min(in.Grace, most)
		}
	}
	if sb, ok := in.Seen.Sandbox(); ok && sb.Ready && cfg.Stale(sb.ID) {
		in.Stale = sb.ID
	}
	in.Now = time.Now()
	return in
}

// update brings the worker's own records up to date with a new input, and adds them to it. The order
// counts: records that no longer apply are dropped before they are copied, and the end of the pod
// depends on most of the others.
func (w *worker) update(in *plan.Input) {
	w.asks.move(&w.life)
	w.forgetChanged(in.Want)
	w.forgetPreStops(in.Seen)
	if in.Want != nil {
		if w.hashes.update(in.Want) {
			w.sizes.wanted, w.sizes.whole = w.set.cfg.Sizes(in.Want)
		}
		in.Spec, in.Applied = w.hashes.hash, w.applied(in.Seen)
		w.sizes.forget(in.Seen)
		w.sizes.show(in)
		w.forgetResize(in.Spec)
	}
	l := &w.life
	in.Busy, in.Failed, in.Replaced = maps.Clone(w.busy), maps.Clone(l.failed), maps.Clone(l.replaced)
	in.PreStopped, in.Requested = maps.Clone(l.preStopped), maps.Clone(l.asked)
	in.Started = w.since(*in)
	in.Stopping = w.until(*in)
	in.Ended = l.ended
	in.Forgotten = l.forgotten && (in.Want == nil || in.Want == w.dropped) // a newer version is forgotten once more
}

// publish makes the input of this round the one that Set.Input returns. It is not changed afterwards.
// The actions that the round starts are in flight in it.
func (w *worker) publish(in plan.Input, starts bool) {
	if starts {
		in.Busy, in.Replaced = maps.Clone(w.busy), maps.Clone(w.life.replaced)
		in.Ended, in.Forgotten = w.life.ended, false
	}
	w.published.Store(&in)
}

// applied returns the hash of the spec that the hooks know; empty: it is not known.
func (w *worker) applied(seen plan.Observed) string {
	if w.life.applied != "" {
		return w.life.applied
	}
	sb, _ := seen.Sandbox()
	return sb.Hash
}

// A specHash is the hash of a pod's spec. It is computed once for each version of the pod: see
// Wanted.Pod.
type specHash struct {
	version *v1.Pod
	hash    string
}

// update reports whether pod is another version than the one before.
func (h *specHash) update(pod *v1.Pod) (changed bool) {
	if h.version == pod {
		return false
	}
	h.version, h.hash = pod, plan.SpecHash(&pod.Spec)
	return true
}

// asks are restarts that people requested since the last round, by container.
type asks struct {
	mu   sync.Mutex
	list map[string]plan.Restart
}

func (a *asks) add(container string, ask plan.Restart) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.list == nil {
		a.list = map[string]plan.Restart{}
	}
	a.list[container] = ask
}

// move moves them to the life that they count in.
func (a *asks) move(to *life) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if to.asked == nil {
		to.asked, a.list = a.list, nil
		return
	}
	maps.Copy(to.asked, a.list)
	a.list = nil
}
