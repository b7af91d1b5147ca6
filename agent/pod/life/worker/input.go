package worker

import (
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// gatherInput builds an input from the data of the other parts of the agent. It changes nothing.
func (w *worker) gatherInput() plan.Input {
	cfg := &w.set.cfg
	wanted, ok := cfg.Desired.Get(w.uid)
	in := plan.Input{
		UID: w.uid, Want: wanted.Pod, Deleting: wanted.Deleting, Grace: wanted.Grace, Lives: uint32(wanted.Lives),
		Waiting: wanted.Predecessor != "", Admitted: wanted.Admitted, End: wanted.End, Reconsider: wanted.Reconsider,
		Undecided: wanted.Undecided, Pending: wanted.Pending, Resized: wanted.Resized,
		Observed: cfg.View.Pod(w.uid), CrashMax: cfg.CrashMax,
	}
	if cfg.DeadLimit != nil {
		in.DeadLimit = cfg.DeadLimit()
	}
	in.Health, in.Hooked = cfg.Health(in.Want, in.Observed), returnedHooks(in.Observed, cfg.HookReturned)
	in.Interrupted = plan.Interruptions(in.Observed, cfg.Interruption)
	switch {
	case !ok:
		in.Want = nil
		for _, sb := range in.Observed.Sandboxes {
			in.Hold = in.Hold || !cfg.Desired.HasReported(sb.Source)
		}
	}
	var most time.Duration
	if in.Want != nil {
		in.ShutdownSince, most = cfg.ShutdownTermination(in.Want)
	}
	in.Grace = gracePeriod(&in, most)
	if wanted.Started != nil {
		in.Started = wanted.Started.Time
	}
	if sb, ok := in.Observed.Sandbox(); ok && sb.Ready && cfg.IsStale(sb.ID) {
		in.Stale = sb.ID
	}
	in.Now = time.Now()
	return in
}

// updateInput updates the worker's own records from a new input, and then adds the records to the input. The order matters:
// obsolete records are deleted before the rest is copied, and Stopping is computed from the fields that are set before it.
func (w *worker) updateInput(in *plan.Input) {
	w.requests.move(&w.life)
	w.forgetChanged(in.Want)
	w.forgetPreStops(in.Observed)
	if in.Want != nil {
		if w.hashes.update(in.Want) {
			w.sizes.wanted, w.sizes.whole = w.set.cfg.Sizes(in.Want)
		}
		in.Spec, in.Applied = w.hashes.hash, w.appliedHash(in.Observed)
		w.sizes.pruneAccepted(in.Observed)
		w.sizes.setFields(in)
		w.forgetResize(in.Spec)
	}
	l := &w.life
	in.InFlight, in.Failed = maps.Clone(w.busy), maps.Clone(l.failed)
	in.PreStopped, in.Requested = maps.Clone(l.preStopped), maps.Clone(l.requested)
	in.Started = w.acceptedAt(*in)
	in.Stopping = w.stoppingSince(*in)
	in.Ended, in.Unmounted = l.ended, l.unmounted
	in.Forgotten = l.forgotten && (in.Want == nil || in.Want == w.forgottenPod) // Forget is repeated for a newer version
}

// publishInput sets the input that Set.Input returns. The input must not be changed afterwards. If the round
// starts actions, the published input contains them as actions in flight.
func (w *worker) publishInput(in plan.Input, starts bool) {
	if starts {
		in.InFlight = maps.Clone(w.busy)
		in.Ended, in.Unmounted, in.Forgotten = w.life.ended, w.life.unmounted, false
	}
	w.published.Store(&in)
}

// appliedHash returns the hash of the spec that was last passed to the hooks. It is empty if
// unknown.
func (w *worker) appliedHash(seen plan.Observed) string {
	if w.life.applied != "" {
		return w.life.applied
	}
	sb, _ := seen.Sandbox()
	return sb.Hash
}

// A specHash caches the hash of a pod's spec, which is computed once for each version of the pod; see Wanted.Pod.
type specHash struct {
	version *v1.Pod
	hash    string
}

// update computes the hash if the version of the pod has changed since the last call. It returns
// true if it has computed the hash.
func (h *specHash) update(pod *v1.Pod) (changed bool) {
	if h.version == pod {
		return false
	}
	h.version, h.hash = pod, plan.SpecHash(&pod.Spec)
	return true
}

// requests contains the restarts that users have requested since the last round, by container.
type requests struct {
	mu   sync.Mutex
	list map[string]plan.Restart
}

func (r *requests) add(container string, request plan.Restart) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list == nil {
		r.list = map[string]plan.Restart{}
	}
	r.list[container] = request
}

// move moves the requests to the current life of the pod.
func (r *requests) move(to *life) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if to.requested == nil {
		to.requested, r.list = r.list, nil
		return
	}
	maps.Copy(to.requested, r.list)
	r.list = nil
}
