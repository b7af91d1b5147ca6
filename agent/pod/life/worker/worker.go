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
	defaultGrace   = 30 * time.Second // of what nobody wants any more
	refreshTimeout = 30 * time.Second
)

// A worker owns one pod. Its goroutine owns the fields below asks. Other goroutines read the published
// input, poke the worker, and leave requests in asks.
type worker struct {
	uid       types.UID
	set       *Set
	log       *slog.Logger
	wake      chan struct{} // capacity 1: a poke while the worker is busy is not lost, several count as one
	ended     chan result
	retry     atomic.Bool                // forget failures whose cause may be gone
	published atomic.Pointer[plan.Input] // of the last round; nil: there was none yet
	asks      asks

	name    string                        // NAMESPACE/NAME, once the pod is known
	cancel  map[string]context.CancelFunc // of the actions in flight, by subject
	busy    map[string]plan.Flight
	aged    bool     // the age of the pod was read from its sandboxes
	dropped *v1.Pod  // the version of the pod that Forget was last carried out for; nil: one that nobody wanted
	hashes  specHash // of the wanted spec
	sizes   sizes
	life    life
}

// A life is what a worker remembers of its pod until the pod is forgotten. A pod that is wanted
// again under the same UID begins a new one.
type life struct {
	last       map[string]plan.Action // that succeeded last, by subject
	told       map[string]plan.Notice // the last one, by container
	failed     map[plan.Key]plan.Failure
	replaced   map[string]string        // plan.Input's Replaced
	asked      map[string]plan.Restart  // plan.Input's Asked; nil: nothing yet
	preStopped map[string]time.Duration // plan.Input's PreStopped
	started    time.Time                // with a monotonic reading, which a clock that is set does not change
	stopping   time.Time
	ending     ending // why stopping is set
	applied    string // hash of the spec that the hooks know; empty: the one in the sandbox's annotation
	ended      bool   // plan.Input's Ended
	forgotten  bool   // plan.Input's Forgotten, for the version in worker.dropped
}

func newLife() life {
	return life{
		last: map[string]plan.Action{}, told: map[string]plan.Notice{}, failed: map[plan.Key]plan.Failure{},
		replaced: map[string]string{}, preStopped: map[string]time.Duration{},
	}
}

// A result is how an action ended.
type result struct {
	subject   string
	err       error
	cancelled bool
}

func newWorker(uid types.UID, s *Set) *worker {
	return &worker{
		uid: uid, set: s, log: s.cfg.Log.With("uid", uid), wake: make(chan struct{}, 1), ended: make(chan result),
		cancel: map[string]context.CancelFunc{}, busy: map[string]plan.Flight{}, life: newLife(),
	}
}

// errNoEffect delays the next attempt when the runtime reports success but its state has not changed.
var errNoEffect = errors.New("it succeeded once more, but nothing has changed")

func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run decides and acts until nothing of the pod is left and nothing of it is wanted. It then returns
// true. It returns false when ctx has ended.
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
		in := w.gather()
		w.update(&in)
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
		w.start(ctx, in, d.Start)
		w.notice(in.Want, d.Notices)
		w.set.cfg.Changed(w.uid)
		timer.Stop()
		if !d.Wake.IsZero() {
			timer.Reset(d.Wake.Sub(in.Now))
		}
		select {
		case <-w.wake:
		case <-timer.C:
		case r := <-w.ended:
			w.end(r)
		case <-ctx.Done():
			return false
		}
	}
}

// start publishes the input of the round, with actions in flight, and then starts them: an action
// may have the pod's status made anew, which is made from the published input.
func (w *worker) start(ctx context.Context, in plan.Input, actions []plan.Action) {
	contexts := make([]context.Context, len(actions))
	for i, a := range actions {
		contexts[i], w.cancel[a.Container] = context.WithCancel(ctx)
		w.begin(in, a)
	}
	w.publish(in, len(actions) > 0)
	for i, a := range actions {
		go func() {
			err := w.do(contexts[i], in, a)
			w.ended <- result{a.Container, err, contexts[i].Err() != nil}
		}()
	}
}

// begin notes that an action is about to start.
func (w *worker) begin(in plan.Input, a plan.Action) {
	w.busy[a.Container] = plan.Flight{Action: a, Since: in.Now}
	w.life.ended = w.life.ended && a.Op != plan.RunSandbox && a.Op != plan.StartContainer
	w.life.forgotten = false
	if a.Op == plan.Forget {
		w.dropped = in.Want
	}
	if a.Op == plan.Resize {
		w.sizes.offer(in)
	}
	stops := a.Op == plan.StopContainer || a.Op == plan.PreStop
	replaces := stops && a.Hash != "" && w.life.replaced[a.Container] != a.ID
	if replaces || a.Again {
		w.life.replaced[a.Container] = a.ID
	}
	if replaces {
		w.log.Info("container definition changed, it will be restarted", "container", a.Container)
	}
	w.log.Debug("start", "op", a.Op, "container", a.Container, "attempt", a.Attempt, "id", a.ID)
}

// do carries out one action. After an action of the runtime it reads the pod's state from the runtime
// again, so the next decision sees the effect.
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
	seen := look(fresh, w.uid)
	return cmp.Or(err, seen)
}

// admit has the node decide whether the pod may run. A decision that Get does not return is an error:
// the plan would start Admit again and again.
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

// allocate has the node decide whether the pod may have the resources that it is wanted with.
func (w *worker) allocate(ctx context.Context) error {
	if err := w.set.cfg.Desired.Allocate(ctx, w.uid); err != nil {
		return err
	}
	if now, ok := w.set.cfg.Desired.Get(w.uid); ok && now.Undecided {
		return errNoEffect
	}
	return nil
}
