package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// podLocks contains a lock for each pod. If a caller stops waiting, the pod stays locked until the call has returned.
type podLocks struct {
	mu    sync.Mutex
	locks map[types.UID]*podLock
}

type podLock struct {
	lock  chan struct{} // a lock of capacity 1
	users int
}

// withLock locks the pod and runs f in a goroutine. The pod stays locked until f returns. withLock returns when f
// returns or when ctx ends.
func (t *podLocks) withLock(ctx context.Context, uid types.UID, f func() error) error {
	t.mu.Lock()
	if t.locks == nil {
		t.locks = map[types.UID]*podLock{}
	}
	mine := t.locks[uid]
	if mine == nil {
		mine = &podLock{lock: make(chan struct{}, 1)}
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
	case mine.lock <- struct{}{}:
	case <-ctx.Done():
		leave()
		return fmt.Errorf("a volume of the pod does not answer: %w", ctx.Err())
	}
	ended := make(chan error, 1)
	go func() {
		err := f()
		<-mine.lock
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

func (v *Volumes) trackedKinds() (all []MountTracker) {
	for _, k := range v.kinds {
		if a, ok := k.(MountTracker); ok {
			all = append(all, a)
		}
	}
	return all
}

// hasTracked reports whether a MountTracker kind has a record of the pod's volumes.
func (v *Volumes) hasTracked(uid types.UID) bool {
	for _, a := range v.trackedKinds() {
		if a.HasPod(uid) {
			return true
		}
	}
	return false
}

// tearDown unmounts the pod's subPaths and then its tracked volumes. The pod's files must not be removed before
// tearDown has succeeded. It calls TearDown also for a pod without tracked volumes, because the end of any pod
// may be the reason why volumes of earlier pods can be unmounted now.
func (v *Volumes) tearDown(ctx context.Context, uid types.UID) error {
	if v.hasTracked(uid) {
		subPaths := filepath.Join(v.podDir(uid), "volume-subpaths")
		if err := v.mountLocks.withLock(ctx, uid, func() error { return mounts.RemoveMounted(subPaths, nil) }); err != nil {
			return fmt.Errorf("unmount the subPaths: %w", err)
		}
	}
	var errs []error
	for _, a := range v.trackedKinds() {
		errs = append(errs, a.TearDown(ctx, uid))
	}
	return errors.Join(errs...)
}

// subPath returns a path to which the subPath of a volume mount is bound. Opening the subPath may block while a server
// does not respond, but the method returns when ctx ends. A blocked call to open the subPath never blocks tearDown,
// because the unmount in tearDown ends this call. If the call succeeds after ctx has ended, the file is not bound.
func (v *Volumes) subPath(ctx context.Context, pod *v1.Pod, ctr *v1.Container, index int, volume string) (string, error) {
	bound := make(chan string, 1)
	if err := v.openLocks.withLock(ctx, pod.UID, func() error {
		p, err := v.openFile(&ctr.VolumeMounts[index], volume)
		if err != nil {
			return err
		}
		defer p.Close()
		return v.mountLocks.withLock(context.WithoutCancel(ctx), pod.UID, func() error { // short, because it does not call the server
			if err := ctx.Err(); err != nil {
				return err // the pod's volumes may have been torn down
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
