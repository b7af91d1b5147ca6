package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// recordResult records the result of an action. The error of a cancelled action is not recorded as a failure.
func (w *worker) recordResult(e result) {
	w.cancelFuncs[e.subject]()
	delete(w.cancelFuncs, e.subject)
	f := w.busy[e.subject]
	delete(w.busy, e.subject)
	if len(w.busy) == 0 {
		w.forgetActionMaps()
	}
	if f.Op == plan.PreStop { // also after an error, because the hook does not run again
		w.life.preStopped[f.ID] = time.Since(f.Since)
	}
	if f.Op == plan.Resize {
		w.sizes.recordResult(e.err == nil, w.hashes.hash == f.Hash)
	}
	key := plan.Key{Container: e.subject, Op: f.Op}
	if e.cancelled && e.err != nil {
		return
	}
	switch {
	case e.err != nil:
	case w.recordSuccess(f.Action):
		delete(w.life.failed, key)
		return
	case w.life.repeats(e.subject, f.Action):
		e.err = errNoEffect
	default:
		succeeded := f.Action // a copy, because a pointer would retain the running action
		w.life.last[e.subject] = &succeeded
		delete(w.life.failed, key)
		return
	}
	w.life.failed[key] = newFailure(w.life.failed[key].N+1, f.Action, e.err)
	if f.Op == plan.PostStart {
		w.log.Warn("postStart hook failed, the container will be stopped", "container", f.Container, "id", f.ID, "error", e.err)
		return
	}
	after := time.Until(w.life.failed[key].Retry).Round(time.Second)
	w.log.Warn("an action failed and will be retried",
		"op", f.Op, "container", f.Container, "attempt", f.Attempt, "after", after, "error", e.err)
}

// forgetActionMaps replaces the empty maps of actions in flight. A map keeps the memory for eight entries after its last entry was deleted,
// and so does each clone of the map in a published input. Most pods have no action in flight for their whole life.
func (w *worker) forgetActionMaps() {
	w.cancelFuncs, w.busy = map[string]context.CancelFunc{}, map[string]plan.RunningAction{}
}

// recordSuccess records the success of an action whose effect is not visible in the runtime. For an action
// with a visible effect it returns false.
func (w *worker) recordSuccess(a plan.Action) bool {
	switch a.Op {
	case plan.Ended:
		w.life.ended = true
	case plan.Unmount:
		w.life.unmounted = true
	case plan.Forget: // a new life begins
		w.beginLife()
		w.life.forgotten = true
	case plan.Update:
		w.life.applied = a.Hash
	case plan.RunSandbox:
		w.life.applied = a.Hash
		return false
	case plan.Admit, plan.Allocate, plan.Resize, plan.PostStart, plan.PreStop:
	default:
		return false
	}
	return true
}

func newFailure(n int, a plan.Action, err error) plan.Failure {
	f := plan.Failure{N: n, At: time.Now(), Message: err.Error(), Hash: a.Hash, ID: a.Target}
	f.Retry = f.At.Add(plan.RetryDelay(n))
	if a.Op == plan.PostStart { // the hook is not run again in the same container
		f.ID, f.Retry = a.ID, time.Time{}
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		f.Reason = p.Reason
		if a.Op == plan.RunSandbox && (p.Reason == plan.FailedCreatePodSandBox || p.Reason == plan.NetworkNotReady) {
			f.Retry = f.At.Add(plan.SandboxRetryDelay(n))
		}
		if !p.Retry.IsZero() {
			f.Retry = p.Retry
		}
	}
	return f
}

// awaitActions waits for the actions in flight.
func (w *worker) awaitActions() {
	for len(w.cancelFuncs) > 0 {
		w.recordResult(<-w.results)
	}
}

// beginLife begins a new life. It also deletes the records about the resources that the runtime has accepted.
func (w *worker) beginLife() {
	w.life = newLife()
	w.sizes.accepted, w.sizes.offered, w.sizes.appliedPodLevel, w.sizes.unknown = nil, nil, nil, false
}

// forgetExternal deletes the failures whose cause is outside the pod, such as a missing image, object, credential or
// network. The actions are then retried without a back-off.
func (w *worker) forgetExternal() {
	maps.DeleteFunc(w.life.failed, func(_ plan.Key, f plan.Failure) bool {
		switch f.Reason {
		case plan.ErrImagePull, plan.ErrImageNeverPull, plan.FailedMount, plan.FailedPrepareDynamicResources, plan.NetworkNotReady,
			plan.CreateContainerConfigError:
			return true
		}
		return false
	})
}

// forgetSandbox deletes the failure of a sandbox that the runtime could not run.
func (w *worker) forgetSandbox() {
	maps.DeleteFunc(w.life.failed, func(_ plan.Key, f plan.Failure) bool { return f.Reason == plan.FailedCreatePodSandBox })
}

// forgetChanged deletes the failed starts of containers whose definition has changed since. For example, a new image is
// pulled without the back-off of the old one.
func (w *worker) forgetChanged(pod *v1.Pod) {
	if pod == nil {
		return
	}
	maps.DeleteFunc(w.life.failed, func(k plan.Key, f plan.Failure) bool {
		_, ctr := podspec.Find(&pod.Spec, k.Container)
		return k.Op == plan.StartContainer && ctr != nil && f.Hash != plan.Hash(ctr)
	})
}

// forgetResize deletes the failure of a resize, unless the resize was to the wanted spec. The parameter is the hash of
// the wanted spec.
func (w *worker) forgetResize(spec string) {
	key := plan.Key{Op: plan.Resize}
	if f, ok := w.life.failed[key]; ok && f.Hash != spec {
		delete(w.life.failed, key)
	}
}

// forgetPreStops deletes the records about preStop hooks of containers that no longer exist.
func (w *worker) forgetPreStops(seen plan.Observed) {
	maps.DeleteFunc(w.life.preStopped, func(id string, _ time.Duration) bool {
		return !slices.ContainsFunc(seen.Containers, func(c plan.Container) bool { return c.ID == id })
	})
}
