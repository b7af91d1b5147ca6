package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// Sweep waits at most sweepTime for unmounts. After that they continue in the background and are retried, so that
// nothing else waits for a server or driver that does not respond.
const (
	sweepTime  = 10 * time.Second
	sweepEach  = 2 * time.Minute
	sweepAgain = time.Minute
)

// podLocks serializes the calls for each pod. If a caller gives up, its call continues and holds the lock until it
// returns.
type podLocks struct {
	mu       sync.Mutex
	locks    map[types.UID]*podLock
	sweeping map[types.UID]bool // UIDs of the pods that are being swept
}

type podLock struct {
	free  chan struct{} // a lock of capacity 1
	users int
}

// withLock calls f with the pod's lock held, in a goroutine. It returns when f returns or when ctx ends.
func (t *podLocks) withLock(ctx context.Context, uid types.UID, f func() error) error {
	t.mu.Lock()
	if t.locks == nil {
		t.locks = map[types.UID]*podLock{}
	}
	mine := t.locks[uid]
	if mine == nil {
		mine = &podLock{free: make(chan struct{}, 1)}
		t.locks[uid] = mine
	}
	mine.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		mine.users--
		if mine.users == 0 {
			delete(t.locks, uid)
		}
	}
	select {
	case mine.free <- struct{}{}:
	case <-ctx.Done():
		leave()
		return fmt.Errorf("a volume of the pod does not answer: %w", ctx.Err())
	}
	ended := make(chan error, 1)
	go func() {
		err := f()
		<-mine.free
		leave()
		ended <- err
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("a volume of the pod does not answer: %w", ctx.Err())
	}
}

func (v *Volumes) trackedKinds() (all []Tracked) {
	for _, k := range v.kinds {
		if a, ok := k.(Tracked); ok {
			all = append(all, a)
		}
	}
	return all
}

// hasTracked reports whether a Tracked kind has recorded volumes of the pod.
func (v *Volumes) hasTracked(uid types.UID) bool {
	for _, a := range v.trackedKinds() {
		if a.Has(uid) {
			return true
		}
	}
	return false
}

// tearDown unmounts the pod's subPaths and then its tracked volumes. Until it has succeeded, the pod's files must not
// be removed.
func (v *Volumes) tearDown(ctx context.Context, uid types.UID) error {
	if !v.hasTracked(uid) {
		return nil
	}
	subPaths := filepath.Join(v.podDir(uid), "volume-subpaths")
	if err := v.mounting.withLock(ctx, uid, func() error { return mounts.RemoveMounted(subPaths, nil) }); err != nil {
		return fmt.Errorf("unmount the subPaths: %w", err)
	}
	var errs []error
	for _, a := range v.trackedKinds() {
		errs = append(errs, a.TearDown(ctx, uid))
	}
	return errors.Join(errs...)
}

// subPath returns a path to which the subPath of a volume mount is bound. Opening the subPath may block while a
// server does not respond, but the call returns when ctx ends. It never blocks tearDown, whose unmount ends the
// blocked open. If the open succeeds after ctx has ended, the file is not bound.
func (v *Volumes) subPath(ctx context.Context, pod *v1.Pod, ctr *v1.Container, index int, volume string) (string, error) {
	bound := make(chan string, 1)
	if err := v.opening.withLock(ctx, pod.UID, func() error {
		p, err := v.open(&ctr.VolumeMounts[index], volume)
		if err != nil {
			return err
		}
		defer p.Close()
		return v.mounting.withLock(context.WithoutCancel(ctx), pod.UID, func() error { // short, because it does not call the server
			if err := ctx.Err(); err != nil {
				return err // the pod may have been torn down
			}
			path, err := v.bindSubPath(pod.UID, ctr, index, p)
			bound <- path
			return err
		})
	}); err != nil {
		return "", err
	}
	return <-bound, nil
}

// sweepTracked releases the pods that still have mounted volumes and for which keep returns false. It also unmounts
// mounts that no pod uses. It waits at most sweepTime.
func (v *Volumes) sweepTracked(ctx context.Context, keep func(types.UID) bool) error {
	var todo []types.UID
	for _, a := range v.trackedKinds() {
		for _, uid := range a.Pods() {
			if !keep(uid) && v.mounting.setSweeping(uid, true) {
				todo = append(todo, uid)
			}
		}
	}
	ended := make(chan error, len(todo)+1)
	for _, uid := range todo {
		go func() {
			defer v.mounting.setSweeping(uid, false)
			ended <- v.sweepOne(ctx, func(ctx context.Context) error {
				if keep(uid) { // the pod is desired again, which is possible for a static pod
					return nil
				}
				return v.Release(ctx, uid)
			})
		}()
	}
	for _, a := range v.trackedKinds() {
		go func() { ended <- v.sweepOne(ctx, a.Sweep) }()
	}
	timeout := time.NewTimer(sweepTime)
	defer timeout.Stop()
	var errs []error
	for range len(todo) + len(v.trackedKinds()) {
		select {
		case err := <-ended:
			errs = append(errs, err)
		case <-timeout.C:
			return errors.Join(append(errs, errors.New("some volumes of removed pods cannot be unmounted yet"))...)
		}
	}
	return errors.Join(errs...)
}

// setSweeping marks a pod as being swept, or clears the mark. It returns false if the mark was already set or
// cleared.
func (t *podLocks) setSweeping(uid types.UID, yes bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if yes == t.sweeping[uid] {
		return false
	}
	if !yes {
		delete(t.sweeping, uid)
		return true
	}
	if t.sweeping == nil {
		t.sweeping = map[types.UID]bool{}
	}
	t.sweeping[uid] = true
	return true
}

// sweepOne calls do until it succeeds or ctx ends.
func (v *Volumes) sweepOne(ctx context.Context, do func(context.Context) error) error {
	for {
		once, stop := context.WithTimeout(ctx, sweepEach)
		err := do(once)
		stop()
		if err == nil {
			return nil
		}
		if v.cfg.Log != nil {
			v.cfg.Log.Warn("cannot unmount an unused volume: retrying", "error", err)
		}
		select {
		case <-time.After(sweepAgain):
		case <-ctx.Done():
			return err
		}
	}
}
