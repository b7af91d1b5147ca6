package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

const (
	defaultGrace   = 30 * time.Second // of what nobody wants any more
	refreshTimeout = 30 * time.Second
)

// A worker owns one pod. Its goroutine owns what is above mu; what is below is
// also read by those who ask for the pod's status.
type worker struct {
	uid   types.UID
	set   *Set
	log   *slog.Logger
	wake  chan struct{} // capacity 1: a poke while busy is not lost, ten are one
	ended chan ended
	retry atomic.Bool // forget failures that may be mended

	cancel map[string]context.CancelFunc
	last   map[string]plan.Action // what succeeded last, by subject
	told   map[string]plan.Notice // last, by container

	mu       sync.Mutex
	busy     map[string]plan.Flight
	failed   map[plan.Key]plan.Failure
	replaced map[string]string        // as plan.Input has it
	asked    map[string]plan.Ask      // the same; nil: nothing yet
	stopped  map[string]time.Duration // plan.Input's PreStopped
	started  time.Time                // with a monotonic reading, so that a clock that jumps does no harm
	aged     bool
	stopping time.Time
	ending   ending // why stopping is set

	name    string  // NAMESPACE/NAME, once the pod is known
	applied string  // hash of the spec that the hooks know; empty: what the sandbox says
	over    bool    // plan.Input's Ended
	gone    bool    // plan.Input's Forgotten, of given
	given   *v1.Pod // what was given back last; nil: what nobody wanted
	spec    *v1.PodSpec
	hash    string // of spec
	sizes   sizes
}

type ended struct {
	subject   string
	err       error
	cancelled bool
}

func newWorker(uid types.UID, s *Set) *worker {
	return &worker{uid: uid, set: s, log: s.cfg.Log.With("uid", uid), wake: make(chan struct{}, 1), ended: make(chan ended),
		cancel: map[string]context.CancelFunc{}, last: map[string]plan.Action{}, told: map[string]plan.Notice{},
		busy: map[string]plan.Flight{}, failed: map[plan.Key]plan.Failure{}, replaced: map[string]string{}, stopped: map[string]time.Duration{}}
}

// errNoEffect keeps a worker from spinning when the runtime says that it did
// something, but still shows what was before.
var errNoEffect = errors.New("it succeeded once more, but nothing has changed")

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run returns true when nothing of the pod is left and nothing of it is wanted,
// false when ctx has ended.
func (w *worker) run(ctx context.Context) bool {
	ctx, stop := context.WithCancel(ctx)
	defer w.drain()
	defer stop()
	timer := time.NewTimer(0)
	timer.Stop()
	for {
		if w.retry.Swap(false) {
			w.forgetMended()
		}
		in := w.input()
		if in.Want != nil && w.name == "" { // before the first action, whose goroutine logs
			w.name = in.Want.Namespace + "/" + in.Want.Name
			w.log = w.set.cfg.Log.With("pod", w.name, "uid", w.uid)
		}
		d := plan.Decide(in)
		if d.Done {
			return true
		}
		for _, s := range d.Cancel {
			w.cancel[s]()
		}
		for _, a := range d.Start {
			w.start(ctx, in, a)
		}
		w.notice(in.Want, d.Notices)
		w.set.cfg.Changed(w.uid)
		timer.Stop()
		if !d.Wake.IsZero() {
			timer.Reset(d.Wake.Sub(in.Now))
		}
		select {
		case <-w.wake:
		case <-timer.C:
		case e := <-w.ended:
			w.end(e)
		case <-ctx.Done():
			return false
		}
	}
}

// input gathers what is known of the pod now.
func (w *worker) input() plan.Input {
	cfg := &w.set.cfg
	wanted, ok := cfg.Desired.Get(w.uid)
	in := plan.Input{
		UID: w.uid, Want: wanted.Pod, Deleting: wanted.Deleting, Grace: wanted.Grace, Lives: uint32(wanted.Lives), Waiting: wanted.Waiting != "",
		Admitted: wanted.Admitted, End: wanted.End, Reconsider: wanted.Reconsider, Undecided: wanted.Undecided, Pending: wanted.Pending,
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
	w.mu.Lock()
	defer w.mu.Unlock()
	in.Now = time.Now()
	w.forgetChanged(in.Want)
	w.forgetStopped(in.Seen)
	in.Busy, in.Failed, in.Replaced, in.PreStopped = maps.Clone(w.busy), maps.Clone(w.failed), maps.Clone(w.replaced), maps.Clone(w.stopped)
	in.Asked = maps.Clone(w.asked)
	in.Started = w.since(in)
	in.Stopping = w.until(in)
	// A wanted pod is never changed but replaced: another one is another's news.
	in.Ended, in.Forgotten = w.over, w.gone && (in.Want == nil || in.Want == w.given)
	in.Spec, in.Applied = w.specs(in)
	if in.Want != nil {
		w.sizes.forget(in.Seen)
		w.sizes.show(&in)
		w.forgetResize(in)
	}
	return in
}

// specs gives the hash of the wanted spec and of the one that the hooks know. The
// caller holds mu.
func (w *worker) specs(in plan.Input) (spec, applied string) {
	if in.Want == nil {
		return "", ""
	}
	if w.spec != &in.Want.Spec { // a wanted pod is never changed but replaced
		w.spec, w.hash = &in.Want.Spec, plan.SpecHash(&in.Want.Spec)
		w.sizes.wanted, w.sizes.whole = w.set.cfg.Sizes(in.Want)
	}
	if applied = w.applied; applied == "" {
		sb, _ := in.Seen.Sandbox()
		applied = sb.Hash
	}
	return w.hash, applied
}

func (w *worker) start(ctx context.Context, in plan.Input, a plan.Action) {
	ctx, w.cancel[a.Container] = context.WithCancel(ctx)
	w.mu.Lock()
	w.busy[a.Container] = plan.Flight{Action: a, Since: in.Now}
	w.over = w.over && a.Op != plan.RunSandbox && a.Op != plan.StartContainer
	w.gone = false
	if a.Op == plan.Forget {
		w.given = in.Want
	}
	if a.Op == plan.Resize {
		w.sizes.offer(in)
	}
	stops := a.Op == plan.StopContainer || a.Op == plan.PreStop
	replaces := stops && a.Hash != "" && w.replaced[a.Container] != a.ID
	if replaces || a.Again {
		w.replaced[a.Container] = a.ID
	}
	w.mu.Unlock()
	if replaces {
		w.log.Info("container definition changed, it will be restarted", "container", a.Container)
	}
	w.log.Debug("start", "op", a.Op, "container", a.Container, "attempt", a.Attempt, "id", a.ID)
	go func() {
		err := w.do(ctx, in, a)
		w.ended <- ended{a.Container, err, ctx.Err() != nil}
	}()
}

// do carries out one action and, if that is the runtime's, then reads the pod anew,
// so that the next decision sees what this one did.
func (w *worker) do(ctx context.Context, in plan.Input, a plan.Action) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.log.Error("action panicked", "op", a.Op, "container", a.Container, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%v panicked: %v", a.Op, r)
		}
	}()
	switch a.Op {
	case plan.Admit:
		return w.admit(ctx)
	case plan.Allocate:
		return w.allocate(ctx)
	case plan.Forget:
		if err := w.set.cfg.Actor.Do(ctx, in, a); err != nil || in.Want == nil {
			return err
		}
		return w.set.cfg.Desired.Forget(ctx, w.uid)
	case plan.Update, plan.Ended, plan.PostStart, plan.PreStop:
		return w.set.cfg.Actor.Do(ctx, in, a)
	}
	err = w.set.cfg.Actor.Do(ctx, in, a)
	look := w.set.cfg.View.Refresh
	if a.Op == plan.Resize {
		look = w.set.cfg.View.Reread
	}
	fresh, stop := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer stop()
	if rerr := look(fresh, w.uid); err == nil {
		err = rerr
	}
	return err
}

// admit asks for the node's verdict. One that does not show would be asked for
// again and again.
func (w *worker) admit(ctx context.Context) error {
	if err := w.set.cfg.Desired.Admit(ctx, w.uid); err != nil {
		return err
	}
	now, ok := w.set.cfg.Desired.Get(w.uid)
	if ok && !now.Deleting && !now.Admitted && (now.End == nil || now.Reconsider) {
		return errNoEffect
	}
	return nil
}

// allocate asks for the node's verdict on other resources.
func (w *worker) allocate(ctx context.Context) error {
	if err := w.set.cfg.Desired.Allocate(ctx, w.uid); err != nil {
		return err
	}
	if now, ok := w.set.cfg.Desired.Get(w.uid); ok && now.Undecided {
		return errNoEffect
	}
	return nil
}

// end notes how an action ended. The end of a cancelled one is not a failure.
func (w *worker) end(e ended) {
	w.cancel[e.subject]()
	delete(w.cancel, e.subject)
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.busy[e.subject]
	delete(w.busy, e.subject)
	if f.Op == plan.PreStop { // however it ended: it does not run again
		w.stopped[f.ID] = time.Since(f.Since)
	}
	if f.Op == plan.Resize {
		w.sizes.end(e.err == nil, w.hash == f.Hash)
	}
	key := plan.Key{Container: e.subject, Op: f.Op}
	if e.cancelled && e.err != nil {
		return
	}
	switch {
	case e.err != nil:
	case w.done(f.Action):
		delete(w.failed, key)
		return
	case w.last[e.subject] == f.Action:
		e.err = errNoEffect
	default:
		w.last[e.subject] = f.Action
		delete(w.failed, key)
		return
	}
	w.failed[key] = failure(w.failed[key].N+1, f.Action, e.err)
	if f.Op == plan.PostStart {
		w.log.Warn("postStart hook failed, the container will be stopped", "container", f.Container, "id", f.ID, "error", e.err)
		return
	}
	w.log.Warn("will try again", "op", f.Op, "container", f.Container, "attempt", f.Attempt, "after", time.Until(w.failed[key].Retry).Round(time.Second), "error", e.err)
}

// done takes note of a success that the runtime does not show, and reports whether
// it was one. The caller holds mu.
func (w *worker) done(a plan.Action) bool {
	switch a.Op {
	case plan.Ended:
		w.over = true
	case plan.Forget: // and with it its life ends
		w.reset()
		w.gone = true
	case plan.Update:
		w.applied = a.Hash
	case plan.RunSandbox:
		w.applied = a.Hash
		return false
	case plan.Admit, plan.Allocate, plan.Resize, plan.PostStart, plan.PreStop:
	default:
		return false
	}
	return true
}

func failure(n int, a plan.Action, err error) plan.Failure {
	f := plan.Failure{N: n, At: time.Now(), Message: err.Error(), Hash: a.Hash, ID: a.Target}
	f.Retry = f.At.Add(plan.RetryDelay(n))
	if a.Op == plan.PostStart { // which is not tried again in the same container
		f.ID, f.Retry = a.ID, time.Time{}
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		f.Reason = p.Reason
		if !p.Retry.IsZero() {
			f.Retry = p.Retry
		}
	}
	return f
}

func (w *worker) drain() {
	for len(w.cancel) > 0 {
		w.end(<-w.ended)
	}
}

// reset makes the worker forget the life of the pod that has ended. The caller holds mu.
func (w *worker) reset() {
	clear(w.last)
	clear(w.told)
	clear(w.failed)
	clear(w.replaced)
	clear(w.asked)
	clear(w.stopped)
	w.started, w.stopping, w.ending = time.Time{}, time.Time{}, goesOn
	w.applied, w.over, w.gone = "", false, false
	w.sizes.accepted, w.sizes.offered, w.sizes.leveled, w.sizes.unsure = nil, nil, nil, false
}

// forgetMended forgets failures whose cause lies outside of the pod: images, objects,
// credentials and networks that were missing.
func (w *worker) forgetMended() {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.failed, func(_ plan.Key, f plan.Failure) bool {
		switch f.Reason {
		case plan.ErrImagePull, plan.ErrImageNeverPull, plan.FailedMount, plan.FailedPrepareDynamicResources, plan.NetworkNotReady, plan.CreateContainerConfigError:
			return true
		}
		return false
	})
}

// forgetChanged forgets failures to start what is wanted otherwise now: the new image
// is not to wait for the old one's back-off. The caller holds mu.
func (w *worker) forgetChanged(pod *v1.Pod) {
	if pod == nil {
		return
	}
	maps.DeleteFunc(w.failed, func(k plan.Key, f plan.Failure) bool {
		_, ctr := podspec.Find(&pod.Spec, k.Container)
		return k.Op == plan.StartContainer && ctr != nil && f.Hash != plan.Hash(ctr)
	})
}

// forgetResize forgets a failure to give what runs resources that are others now. The
// caller holds mu.
func (w *worker) forgetResize(in plan.Input) {
	key := plan.Key{Op: plan.Resize}
	if f, ok := w.failed[key]; ok && f.Hash != in.Spec {
		delete(w.failed, key)
		delete(in.Failed, key)
	}
}
