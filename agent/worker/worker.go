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

	"github.com/islet-edge/islet/agent/plan"
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
	replaced map[string]string // as plan.Input has it
	started  time.Time         // with a monotonic reading, so that a clock that jumps does no harm
	stopping time.Time
}

type ended struct {
	subject   string
	err       error
	cancelled bool
}

func newWorker(uid types.UID, s *Set) *worker {
	return &worker{uid: uid, set: s, log: s.cfg.Log.With("uid", uid), wake: make(chan struct{}, 1), ended: make(chan ended),
		cancel: map[string]context.CancelFunc{}, last: map[string]plan.Action{}, told: map[string]plan.Notice{},
		busy: map[string]plan.Flight{}, failed: map[plan.Key]plan.Failure{}, replaced: map[string]string{}}
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
		d := plan.Decide(in)
		if d.Done && w.finish(ctx, in, &d) {
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
		Want: wanted.Pod, Deleting: wanted.Deleting, Grace: wanted.Grace, Waiting: wanted.Waiting != "", End: wanted.End,
		Seen: cfg.View.Pod(w.uid), Health: cfg.Health(w.uid), CrashMax: cfg.CrashMax,
	}
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
	w.mu.Lock()
	defer w.mu.Unlock()
	in.Now = time.Now()
	w.forgetChanged(in.Want)
	in.Busy, in.Failed, in.Replaced = maps.Clone(w.busy), maps.Clone(w.failed), maps.Clone(w.replaced)
	in.Started, in.Stopping = w.since(in)
	return in
}

// since says when the pod was first taken up and when its end was first asked
// for. The sandboxes remember the first over restarts of the agent; what was
// written there before the clock was set does not count.
func (w *worker) since(in plan.Input) (started, stopping time.Time) {
	if w.started.IsZero() && !in.Waiting {
		w.started = in.Now
	}
	if in.Want != nil && !in.Deleting && in.End == nil {
		w.stopping = time.Time{}
	} else if w.stopping.IsZero() {
		w.stopping = in.Now
	}
	started = w.started
	for _, sb := range in.Seen.Sandboxes {
		if sb.Started.Year() >= clockFloor && sb.Started.Before(started) {
			started = sb.Started
		}
	}
	return started, w.stopping
}

// clockFloor is a year before which no node of this program has lived.
const clockFloor = 2020

func (w *worker) start(ctx context.Context, in plan.Input, a plan.Action) {
	ctx, w.cancel[a.Container] = context.WithCancel(ctx)
	w.mu.Lock()
	w.busy[a.Container] = plan.Flight{Action: a, Since: in.Now}
	replaces := a.Op == plan.StopContainer && a.Hash != ""
	if replaces {
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

// do carries out one action and then reads the pod anew, so that the next
// decision sees what this one did.
func (w *worker) do(ctx context.Context, in plan.Input, a plan.Action) (err error) {
	defer func() {
		if r := recover(); r != nil {
			w.log.Error("action panicked", "op", a.Op, "container", a.Container, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("%v panicked: %v", a.Op, r)
		}
	}()
	err = w.set.cfg.Actor.Do(ctx, in, a)
	fresh, stop := context.WithTimeout(context.WithoutCancel(ctx), refreshTimeout)
	defer stop()
	if rerr := w.set.cfg.View.Refresh(fresh, w.uid); err == nil {
		err = rerr
	}
	return err
}

// end notes how an action ended. The end of a cancelled one is not a failure.
func (w *worker) end(e ended) {
	w.cancel[e.subject]()
	delete(w.cancel, e.subject)
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.busy[e.subject]
	delete(w.busy, e.subject)
	key := plan.Key{Container: e.subject, Op: f.Op}
	if e.cancelled && e.err != nil {
		return
	}
	if e.err == nil && w.last[e.subject] == f.Action {
		e.err = errNoEffect
	}
	if e.err == nil {
		w.last[e.subject] = f.Action
		delete(w.failed, key)
		return
	}
	w.failed[key] = failure(w.failed[key].N+1, f.Hash, e.err)
	w.log.Warn("will try again", "op", f.Op, "container", f.Container, "attempt", f.Attempt, "after", time.Until(w.failed[key].Retry).Round(time.Second), "err", e.err)
}

func failure(n int, hash string, err error) plan.Failure {
	f := plan.Failure{N: n, At: time.Now(), Message: err.Error(), Hash: hash}
	f.Retry = f.At.Add(plan.RetryDelay(n))
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

// reset makes the worker forget the life of the pod that has ended.
func (w *worker) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.last)
	clear(w.told)
	clear(w.failed)
	clear(w.replaced)
	w.started, w.stopping = time.Time{}, time.Time{}
}

// forgetMended forgets failures whose cause lies outside of the pod: images, objects
// and credentials that were missing.
func (w *worker) forgetMended() {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.failed, func(_ plan.Key, f plan.Failure) bool {
		switch f.Reason {
		case plan.ErrImagePull, plan.ErrImageNeverPull, plan.FailedMount, plan.CreateContainerConfigError:
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
		ctr := container(pod, k.Container)
		return k.Op == plan.StartContainer && ctr != nil && f.Hash != plan.Hash(ctr)
	})
}

// finish gives back what the host holds for the pod and lets its source forget
// it. Failing that, it asks to be called again.
func (w *worker) finish(ctx context.Context, in plan.Input, d *plan.Decision) bool {
	key := plan.Key{Op: plan.Forget}
	if f, ok := in.Failed[key]; ok && in.Now.Before(f.Retry) {
		d.Wake = f.Retry
		return false
	}
	err := w.set.cfg.Actor.Release(ctx, w.uid)
	if err == nil && in.Want != nil {
		err = w.set.cfg.Desired.Forget(ctx, w.uid)
	}
	if err == nil {
		return true
	}
	w.log.Warn("cannot clear up after the pod, will try again", "err", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed[key] = failure(w.failed[key].N+1, "", err)
	d.Wake = w.failed[key].Retry
	return false
}
