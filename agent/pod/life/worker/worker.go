package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
)

const (
	refreshTimeout = 30 * time.Second
)

// A worker runs the actions of one pod. Other goroutines read the published input, poke the worker, and add
// requests. Only the worker's goroutine uses the fields after requests.
type worker struct {
	uid               types.UID
	set               *Set
	log               *slog.Logger
	wakeSignal        chan struct{} // capacity 1: pokes during a round cause one more round
	results           chan result
	endBackoffs       atomic.Bool                // end the back-offs whose cause may have been removed
	endSandboxBackoff atomic.Bool                // also end the back-off of a sandbox that the runtime could not run
	published         atomic.Pointer[plan.Input] // the input of the last round; nil before the first round
	requests          requests

	name         string                        // NAMESPACE/NAME; empty until a source has wanted the pod
	cancelFuncs  map[string]context.CancelFunc // cancels the action in flight, by subject
	busy         map[string]plan.RunningAction
	ageComputed  bool     // the age of the pod was computed from its sandboxes
	forgottenPod *v1.Pod  // the wanted pod of the last Forget; nil if no source wanted the pod
	hashes       specHash // hash of the wanted spec
	sizes        sizes
	life         life
}

// A life contains the worker's records about its pod until Forget succeeds. If the pod is wanted again under
// the same UID, a new life begins.
type life struct {
	last        map[string]*plan.Action // the last action that succeeded, by subject; pointers, because a map has room for eight values
	lastNotices map[string]plan.Notice  // the last notice, by container
	failed      map[plan.Key]plan.Failure
	requested   map[string]plan.Restart  // see plan.Input.Requested; nil if there were no requests
	preStopped  map[string]time.Duration // see plan.Input.PreStopped
	startTime   time.Time                // has a monotonic reading, so it stays correct if the clock is set
	stopTime    time.Time
	ending      ending // the reason for stopping
	applied     string // hash of the spec last passed to the hooks; if empty, the sandbox's annotation has it
	ended       bool   // see plan.Input.Ended
	unmounted   bool   // see plan.Input.Unmounted
	forgotten   bool   // see plan.Input.Forgotten; it is about the version in worker.forgottenPod
}

func newLife() life {
	return life{
		last: map[string]*plan.Action{}, lastNotices: map[string]plan.Notice{}, failed: map[plan.Key]plan.Failure{},
		preStopped: map[string]time.Duration{},
	}
}

// repeats reports whether an action is equal to the last one that succeeded for the subject.
func (l *life) repeats(subject string, a plan.Action) bool {
	last := l.last[subject]
	return last != nil && *last == a
}

// A result is the outcome of an action.
type result struct {
	subject   string
	err       error
	cancelled bool
}

func newWorker(uid types.UID, s *Set) *worker {
	return &worker{
		uid: uid, set: s, log: s.cfg.Log.With("uid", uid), wakeSignal: make(chan struct{}, 1), results: make(chan result),
		cancelFuncs: map[string]context.CancelFunc{}, busy: map[string]plan.RunningAction{}, life: newLife(),
	}
}

// errNoEffect is the failure of an action that succeeded but changed nothing. It delays the next attempt.
var errNoEffect = errors.New("the action succeeded, but had no effect")

func (w *worker) poke() {
	select {
	case w.wakeSignal <- struct{}{}:
	default:
	}
}

// run runs the rounds of the worker. It returns true when nothing of the pod is left and no source wants it, and false
// when ctx has ended.
func (w *worker) run(ctx context.Context) bool {
	ctx, stop := context.WithCancel(ctx)
	defer w.awaitActions()
	defer stop()
	timer := time.NewTimer(0)
	timer.Stop()
	for {
		if w.decide(ctx, timer) {
			return true
		}
		select {
		case <-w.wakeSignal:
		case <-timer.C:
		case r := <-w.results:
			w.recordResult(r)
		case <-ctx.Done():
			return false
		}
	}
}

// decide runs one round, and sets the timer to the time of the next round. It returns true when nothing of the pod is left and no source
// wants it. Its variables need 1.5 KiB of stack. A worker that waits must not keep them, because a stack shrinks only while three quarters
// of it are unused, and a node has one worker for each pod.
func (w *worker) decide(ctx context.Context, timer *time.Timer) (done bool) {
	if w.endBackoffs.Swap(false) {
		w.forgetExternal()
	}
	if w.endSandboxBackoff.Swap(false) {
		w.forgetSandbox()
	}
	in := w.gatherInput()
	w.updateInput(&in)
	if in.Want != nil && w.name == "" { // set before the first action, because the goroutines of actions use w.log
		w.name = in.Want.Namespace + "/" + in.Want.Name
		w.log = w.set.cfg.Log.With("pod", w.name, "uid", w.uid)
	}
	d := plan.Decide(in)
	if d.Done {
		return true
	}
	for _, s := range d.Cancel {
		w.cancelFuncs[s]()
	}
	w.startActions(ctx, in, d.Start)
	w.recordNotices(in.Want, d.Notices)
	w.set.cfg.Changed(w.uid)
	timer.Stop()
	if !d.Wake.IsZero() {
		timer.Reset(d.Wake.Sub(in.Now))
	}
	return false
}

// startActions publishes the input of the round, which contains the actions as actions in flight, and then starts them. It
// publishes first because an action may cause an update of the pod's status, which is computed from the published input.
func (w *worker) startActions(ctx context.Context, in plan.Input, actions []plan.Action) {
	contexts := make([]context.Context, len(actions))
	for i, a := range actions {
		contexts[i], w.cancelFuncs[a.Container] = context.WithCancel(ctx)
		w.recordStart(in, a)
	}
	w.publishInput(in, len(actions) > 0)
	for i, a := range actions {
		go func() {
			err := w.runAction(contexts[i], in, a)
			w.results <- result{a.Container, err, contexts[i].Err() != nil}
		}()
	}
}

// recordStart records that an action is about to start.
func (w *worker) recordStart(in plan.Input, a plan.Action) {
	w.busy[a.Container] = plan.RunningAction{Action: a, Since: in.Now}
	if a.Op == plan.RunSandbox || a.Op == plan.StartContainer {
		w.life.ended, w.life.unmounted = false, false
	}
	w.life.forgotten = false
	if a.Op == plan.Forget {
		w.forgottenPod = in.Want
	}
	if a.Op == plan.Resize {
		w.sizes.recordOffer(in)
	}
	stops := a.Op == plan.StopContainer || a.Op == plan.PreStop
	if stops && a.Hash != "" && in.Interrupted[a.ID] == 0 {
		w.log.Info("container definition changed, it will be restarted", "container", a.Container)
	}
	w.log.Debug("start", "op", a.Op, "container", a.Container, "attempt", a.Attempt, "id", a.ID)
}

// runAction carries out one action. After an action that changes the runtime, it reads the pod's state from the runtime again, so
// that the next decision takes the effect into account.
func (w *worker) runAction(ctx context.Context, in plan.Input, a plan.Action) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.log.Error("action panicked", "op", a.Op, "container", a.Container, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%v panicked: %v", a.Op, r)
		}
	}()
	switch a.Op {
	case plan.Admit:
		return w.admitPod(ctx)
	case plan.Allocate:
		return w.allocateResources(ctx)
	case plan.Forget:
		if err := w.set.cfg.Actor.Do(ctx, in, a); err != nil || in.Want == nil {
			return err
		}
		return w.set.cfg.Desired.Forget(ctx, w.uid)
	case plan.Update, plan.Ended, plan.Unmount, plan.PostStart, plan.PreStop:
		return w.set.cfg.Actor.Do(ctx, in, a)
	}
	defer w.set.cfg.View.Begin(w.uid)()
	err = w.set.cfg.Actor.Do(ctx, in, a)
	refresh := w.set.cfg.View.Refresh
	if a.Op == plan.Resize {
		refresh = w.set.cfg.View.Reread
	}
	fresh, stop := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer stop()
	missed := refresh(fresh, w.uid)
	return cmp.Or(err, missed)
}

// admitPod decides whether the pod may run. If Get does not return the decision, it returns errNoEffect. Otherwise the
// plan would repeat the action without a delay.
func (w *worker) admitPod(ctx context.Context) error {
	if err := w.set.cfg.Desired.Admit(ctx, w.uid); err != nil {
		return err
	}
	now, ok := w.set.cfg.Desired.Get(w.uid)
	if ok && !now.Deleting && !now.Admitted && (now.End == nil || now.Reconsider) {
		return errNoEffect
	}
	return nil
}

// allocateResources decides whether the pod may have the resources that it requests. Like admitPod, it may return errNoEffect.
func (w *worker) allocateResources(ctx context.Context) error {
	if err := w.set.cfg.Desired.Allocate(ctx, w.uid); err != nil {
		return err
	}
	if now, ok := w.set.cfg.Desired.Get(w.uid); ok && now.Undecided {
		return errNoEffect
	}
	return nil
}
