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

// What is swept goes on in the background after sweepTime, and is tried again, so that
// a server or a driver that does not answer holds up nobody.
const (
	sweepTime  = 10 * time.Second
	sweepEach  = 2 * time.Minute
	sweepAgain = time.Minute
)

// turns lets one at a time do something for a pod. A call that is given up goes on, and the
// next one of that pod waits for it.
type turns struct {
	mu    sync.Mutex
	all   map[types.UID]*turn
	swept map[types.UID]bool // somebody does already
}

type turn struct {
	free  chan struct{} // capacity 1
	users int
}

// alone calls f in a goroutine of its own and waits for it, or for the end of ctx.
func (t *turns) alone(ctx context.Context, uid types.UID, f func() error) error {
	t.mu.Lock()
	if t.all == nil {
		t.all = map[types.UID]*turn{}
	}
	mine := t.all[uid]
	if mine == nil {
		mine = &turn{free: make(chan struct{}, 1)}
		t.all[uid] = mine
	}
	mine.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.all, uid)
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

func (v *Volumes) aparts() (all []Apart) {
	for _, k := range v.kinds {
		if a, ok := k.(Apart); ok {
			all = append(all, a)
		}
	}
	return all
}

// hasApart reports whether a pod has volumes of which account is kept.
func (v *Volumes) hasApart(uid types.UID) bool {
	for _, a := range v.aparts() {
		if a.Has(uid) {
			return true
		}
	}
	return false
}

// tearDown has the volumes unmounted of which account is kept, and before that what of
// them is bound elsewhere. Until all are, nothing of the pod is removed.
func (v *Volumes) tearDown(ctx context.Context, uid types.UID) error {
	if !v.hasApart(uid) {
		return nil
	}
	subPaths := filepath.Join(v.podDir(uid), "volume-subpaths")
	if err := v.turns.alone(ctx, uid, func() error { return mounts.RemoveMounted(subPaths, nil) }); err != nil {
		return fmt.Errorf("unmount the subPaths: %w", err)
	}
	var errs []error
	for _, a := range v.aparts() {
		errs = append(errs, a.TearDown(ctx, uid))
	}
	return errors.Join(errs...)
}

// subPath returns a path that is the subPath of a volume mount and stays so. To open it may
// take as long as a server is gone. It is given up when ctx ends, and holds up no tearDown,
// which unmounts the volume and so ends it; what is opened after that is bound nowhere.
func (v *Volumes) subPath(ctx context.Context, pod *v1.Pod, ctr *v1.Container, index int, volume string) (string, error) {
	bound := make(chan string, 1)
	if err := v.opens.alone(ctx, pod.UID, func() error {
		p, err := v.open(&ctr.VolumeMounts[index], volume)
		if err != nil {
			return err
		}
		defer p.Close()
		return v.turns.alone(context.WithoutCancel(ctx), pod.UID, func() error { // which ends soon
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

// sweepApart releases pods that keep does not want and whose volumes are mounted still,
// with their directories, and what is mounted for nobody. It waits a moment only.
func (v *Volumes) sweepApart(ctx context.Context, keep func(types.UID) bool) error {
	var todo []types.UID
	for _, a := range v.aparts() {
		for _, uid := range a.Pods() {
			if !keep(uid) && v.turns.sweeps(uid, true) {
				todo = append(todo, uid)
			}
		}
	}
	ended := make(chan error, len(todo)+1)
	for _, uid := range todo {
		go func() {
			defer v.turns.sweeps(uid, false)
			ended <- v.sweepOne(ctx, func(ctx context.Context) error {
				if keep(uid) { // wanted anew meanwhile, as static pods may be
					return nil
				}
				return v.Release(ctx, uid)
			})
		}()
	}
	for _, a := range v.aparts() {
		go func() { ended <- v.sweepOne(ctx, a.Sweep) }()
	}
	patience := time.NewTimer(sweepTime)
	defer patience.Stop()
	var errs []error
	for range len(todo) + len(v.aparts()) {
		select {
		case err := <-ended:
			errs = append(errs, err)
		case <-patience.C:
			return errors.Join(append(errs, errors.New("some volumes of pods that are gone cannot be unmounted yet"))...)
		}
	}
	return errors.Join(errs...)
}

// sweeps notes that somebody sweeps a pod, or no longer; it is false if somebody else does.
func (t *turns) sweeps(uid types.UID, yes bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if yes == t.swept[uid] {
		return false
	}
	if !yes {
		delete(t.swept, uid)
		return true
	}
	if t.swept == nil {
		t.swept = map[types.UID]bool{}
	}
	t.swept[uid] = true
	return true
}

// sweepOne tries until it succeeds or ctx ends.
func (v *Volumes) sweepOne(ctx context.Context, do func(context.Context) error) error {
	for {
		once, stop := context.WithTimeout(ctx, sweepEach)
		err := do(once)
		stop()
		if err == nil {
			return nil
		}
		if v.cfg.Log != nil {
			v.cfg.Log.Warn("a volume that nobody uses is mounted still, will try again", "error", err)
		}
		select {
		case <-time.After(sweepAgain):
		case <-ctx.Done():
			return err
		}
	}
}
