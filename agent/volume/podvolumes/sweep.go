package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Sweep waits at most sweepTime for unmounts. Unmounts that take longer continue in the background and are
// retried, so that a server or driver that does not respond blocks nothing else.
const (
	sweepTime  = 10 * time.Second
	sweepEach  = 2 * time.Minute
	sweepAgain = time.Minute
)

// Sweep releases the pods that have a directory and for which the function keep returns false. Call it only after all
// sources of pods have reported.
func (v *Volumes) Sweep(ctx context.Context, keep func(types.UID) bool) error {
	errs := []error{v.sweepTracked(ctx, keep)}
	entries, err := os.ReadDir(v.podsDir)
	if err != nil {
		return fmt.Errorf("list the directories of the pods: %w", err)
	}
	for _, e := range entries {
		if uid := types.UID(e.Name()); !keep(uid) && !v.hasTracked(uid) {
			errs = append(errs, v.Release(ctx, uid))
		}
	}
	return errors.Join(errs...)
}

// sweepTracked unmounts the volumes of the pods for which the function keep returns false. It also unmounts the
// volumes that no pod uses. It waits at most sweepTime, and not for a pod whose volumes an earlier call has failed to unmount.
func (v *Volumes) sweepTracked(ctx context.Context, keep func(types.UID) bool) error {
	loops, asked := map[string]*sweepLoop{}, map[string]bool{}
	for _, a := range v.trackedKinds() {
		for _, uid := range a.Pods() {
			name := "pod " + string(uid)
			if keep(uid) || asked[name] {
				continue
			}
			asked[name] = true
			l, isNew := v.requestSweep(ctx, name, func(ctx context.Context) error {
				if keep(uid) { // the pod is desired again, which can happen with a static pod
					return nil
				}
				return v.Release(ctx, uid)
			})
			if isNew {
				loops[name] = l
			}
		}
	}
	for _, a := range v.trackedKinds() {
		name := "kind " + a.Plugin()
		loops[name], _ = v.requestSweep(ctx, name, a.Sweep)
	}
	timeout := time.NewTimer(sweepTime)
	defer timeout.Stop()
	var errs []error
	for _, l := range loops {
		select {
		case <-l.ended:
			errs = append(errs, l.err)
		case <-timeout.C:
			return errors.Join(append(errs, errors.New("some volumes of removed pods cannot be unmounted yet"))...)
		case <-ctx.Done():
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	return errors.Join(errs...)
}

// sweepLoops contains the loops that unmount volumes in the background, by name. There is at most one loop for each pod and each kind,
// however often Sweep is called.
type sweepLoops struct {
	mu      sync.Mutex
	running map[string]*sweepLoop
}

// A sweepLoop repeats an unmount until it succeeds or its context ends.
type sweepLoop struct {
	next  *sweepRequest // the last request that the loop has not started; guarded by sweepLoops.mu
	wake  chan struct{} // capacity 1; contains a value if next is set
	ended chan struct{}
	err   error // valid when ended is closed
}

type sweepRequest struct {
	ctx context.Context
	do  func(context.Context) error
}

// requestSweep makes the loop with the given name call the function do, and returns the loop. It starts the loop if there is none, and then
// isNew is true. A running loop calls do at once after its current unmount, because that unmount may have begun before the volumes of do
// became unused.
func (v *Volumes) requestSweep(ctx context.Context, name string, do func(context.Context) error) (l *sweepLoop, isNew bool) {
	s := &v.sweeps
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.running[name]; l != nil {
		l.next = &sweepRequest{ctx, do}
		select {
		case l.wake <- struct{}{}:
		default:
		}
		return l, false
	}
	if s.running == nil {
		s.running = map[string]*sweepLoop{}
	}
	l = &sweepLoop{wake: make(chan struct{}, 1), ended: make(chan struct{})}
	s.running[name] = l
	go v.runSweep(l, name, sweepRequest{ctx, do})
	return l, true
}

func (v *Volumes) runSweep(l *sweepLoop, name string, r sweepRequest) {
	for more := true; more; {
		once, stop := context.WithTimeout(r.ctx, sweepEach)
		err := r.do(once)
		stop()
		if err != nil && r.ctx.Err() == nil {
			if v.cfg.Log != nil {
				v.cfg.Log.Warn("cannot unmount an unused volume: retrying", "error", err)
			}
			select {
			case <-time.After(sweepAgain):
			case <-l.wake:
			case <-r.ctx.Done():
			}
		}
		r, more = v.sweeps.proceed(l, name, r, err)
	}
}

// proceed returns the request that the loop executes next, after an unmount with the result err. It returns false if the loop ends. While
// the context of the former request has not ended, the next request uses this context, because its own context may end earlier.
func (s *sweepLoops) proceed(l *sweepLoop, name string, r sweepRequest, err error) (sweepRequest, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next := l.next; next != nil {
		l.next = nil
		select {
		case <-l.wake:
		default:
		}
		if r.ctx.Err() == nil {
			next.ctx = r.ctx
		}
		return *next, true
	}
	if err != nil && r.ctx.Err() == nil {
		return r, true
	}
	delete(s.running, name)
	l.err = err
	close(l.ended)
	return r, false
}
