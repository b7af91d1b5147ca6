package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

// unmountPod unmounts all volumes of a pod concurrently, and unstages the volumes that no other pod uses. First, it cancels the pod's
// setups whose callers have stopped waiting. If a driver returns an error, the row stays in the ledger. Then unmountPod calls
// unstageUnused.
func (k *Mounter) unmountPod(ctx context.Context, uid types.UID) error {
	ids := k.podVolumes(uid)
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			use := volumeUse{id, uid}
			k.cancelSetUp(use)
			if err := k.withUse(ctx, use,
				func(ctx context.Context, _ func()) error { return k.unmountPodVolume(ctx, id, string(uid)) }); err != nil {
				errs[i] = fmt.Errorf("volume %s: %w", id, err)
			}
		})
	}
	all.Wait()
	k.unstageUnused(ctx, ids)
	return errors.Join(errs...)
}

// unstageUnused unstages the volumes that no pod uses, without the given ones. Such volumes exist if unstaging them has failed after their
// last pod ended. It only logs errors. It skips a volume for which a call is running, and waits at most unstageWait, because a driver that
// hangs must not delay pods that do not use its volume. The calls continue after that.
func (k *Mounter) unstageUnused(ctx context.Context, without []string) {
	wait, stop := context.WithTimeout(ctx, unstageWait)
	defer stop()
	var all sync.WaitGroup
	for _, id := range k.unusedVolumes() {
		k.mu.Lock()
		busy := k.locks[volumeUse{id: id}] != nil
		k.mu.Unlock()
		if busy || slices.Contains(without, id) {
			continue
		}
		all.Go(func() {
			if err := k.withLock(wait, id, "", func(context.Context) error {
				ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), mountTime)
				defer stop()
				return k.unstageVolume(ctx, id)
			}); err != nil {
				k.cfg.Log.Warn("a volume that no pod uses cannot be unmounted: islet tries again when another pod ends",
					"volume", id, "error", err)
			}
		})
	}
	all.Wait()
}

// unstageWait is the maximum time for which the end of a pod waits for the volumes of earlier pods.
const unstageWait = 10 * time.Second

// unusedVolumes returns the IDs of the volumes that are staged and that no pod uses.
func (k *Mounter) unusedVolumes() (ids []string) {
	k.mu.Lock()
	for key := range k.rows {
		if key.Pod == "" {
			ids = append(ids, key.Volume)
		}
	}
	k.mu.Unlock()
	slices.Sort(ids)
	return slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return k.usedByOthers(id, "") })
}

// unmountPodVolume unpublishes a volume of a pod, and unstages it if no other pod uses it. The
// caller holds the volume's lock.
func (k *Mounter) unmountPodVolume(ctx context.Context, id, pod string) error {
	k.forgetExpansion(volumeUse{id, types.UID(pod)})
	for key, r := range k.rowsFor(id, pod) {
		if err := k.unpublishVolume(ctx, key, r); err != nil {
			return err
		}
	}
	return k.unstageVolume(ctx, id)
}

// unstageVolume unmounts a volume for the node. It does nothing if a pod uses the volume. The caller holds the volume's
// lock.
func (k *Mounter) unstageVolume(ctx context.Context, id string) error {
	if k.usedByOthers(id, "") {
		return nil
	}
	for key, r := range k.rowsFor(id, "") {
		s, ok := k.findDriver(r.Plugin).(Stager)
		if !ok {
			return fmt.Errorf("this node has no driver %s to unmount %s", r.Plugin, key.Path)
		}
		k.setReady(key, false)
		if err := k.checkUnused(r.Volume.Name, key.Path); err != nil {
			return err
		}
		operation := "unmount_device"
		if r.Volume.Block {
			operation = "unmap_device"
		}
		if err := k.observeCall(operation, r.Plugin, r.Volume, func() error { return s.Unstage(ctx, r.Volume, key.Path) }); err != nil {
			return fmt.Errorf("UnmountDevice failed for volume %q : %w", r.Volume.Name, err)
		}
		if err := k.deleteRow(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

func (k *Mounter) unpublishVolume(ctx context.Context, key store.VolumeKey, r record) error {
	d := k.findDriver(r.Plugin)
	if d == nil {
		return fmt.Errorf("this node has no driver %s to unmount %s", r.Plugin, key.Path)
	}
	k.setReady(key, false)
	operation := "volume_unmount"
	if r.Volume.Block {
		operation = "unmap_volume"
	}
	if err := k.observeCall(operation, r.Plugin, r.Volume,
		func() error { return d.Unpublish(ctx, r.Volume, types.UID(key.Pod), key.Path) }); err != nil {
		return fmt.Errorf("UnmountVolume.TearDown failed for volume %q : %w", r.Volume.Name, err)
	}
	return k.deleteRow(ctx, key)
}

// sweepUnused concurrently unstages the volumes that no pod uses. Such volumes exist if the agent has ended between two steps. Each volume
// has its own timeout, because a driver that hangs must not delay the volumes of others. After that, it unmounts mounts that are not in the
// ledger.
func (k *Mounter) sweepUnused(ctx context.Context) error {
	ids := k.unusedVolumes()
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			ctx, stop := context.WithTimeout(ctx, mountTime)
			defer stop()
			errs[i] = k.withLock(ctx, id, "", func(ctx context.Context) error { return k.unstageVolume(ctx, id) })
		})
	}
	all.Wait()
	return errors.Join(append(errs, k.sweepOrphans(ctx))...)
}

// sweepOrphans calls unmountOrphans, and waits for it at most mountTime. The unmount of a device that does not respond never returns, so
// there is at most one call at a time.
func (k *Mounter) sweepOrphans(ctx context.Context) error {
	select {
	case k.orphans <- struct{}{}:
	default:
		return errors.New("the unmount of a volume that is not in the database has not returned yet")
	}
	ended := make(chan error, 1)
	go func() {
		defer func() { <-k.orphans }()
		ended <- k.unmountOrphans()
	}()
	ctx, stop := context.WithTimeout(ctx, mountTime)
	defer stop()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return fmt.Errorf("unmount a volume that is not in the database: %w", ctx.Err())
	}
}
