package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
// volumes that no pod uses. It waits at most sweepTime.
func (v *Volumes) sweepTracked(ctx context.Context, keep func(types.UID) bool) error {
	var todo []types.UID
	for _, a := range v.trackedKinds() {
		for _, uid := range a.Pods() {
			if !keep(uid) && v.mountLocks.setSweeping(uid, true) {
				todo = append(todo, uid)
			}
		}
	}
	ended := make(chan error, len(todo)+1)
	for _, uid := range todo {
		go func() {
			defer v.mountLocks.setSweeping(uid, false)
			ended <- v.sweepOne(ctx, func(ctx context.Context) error {
				if keep(uid) { // the pod is desired again, which can happen with a static pod
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
