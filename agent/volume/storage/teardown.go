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
	"github.com/islet-edge/islet/internal/retry"
)

// unmountPod unmounts all volumes of a pod concurrently, and unstages the volumes that no other pod uses. First, it cancels the pod's
// setups whose callers have stopped waiting. If a driver returns an error, the row stays in the ledger. Then unmountPod retries to unstage
// the volumes of earlier pods, and does not wait for the result.
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
	k.retryUnstage(ids)
	return errors.Join(errs...)
}

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

// RetryUnstage retries at once to unstage the volumes for which this has failed. It does not wait for the result. It must be called when a
// driver has become available.
func (k *Mounter) RetryUnstage() { k.retryUnstage(nil) }

// retryUnstage is RetryUnstage without the given volumes.
func (k *Mounter) retryUnstage(without []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, wake := range k.unstages {
		if !slices.Contains(without, id) {
			select {
			case wake <- struct{}{}:
			default:
			}
		}
	}
}

// repeatUnstage starts a loop that unstages a volume after the first attempt has failed. It does nothing if the loop is running. Like in a
// kubelet, the attempts do not depend on the end of other pods: while the volume is staged, it cannot be attached to another node.
func (k *Mounter) repeatUnstage(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unstages[id] == nil {
		wake := make(chan struct{}, 1)
		k.unstages[id] = wake
		go k.runUnstage(id, wake)
	}
}

// runUnstage repeats to unstage a volume until it is not staged any more, or until a pod uses it. It ends with the agent.
func (k *Mounter) runUnstage(id string, wake <-chan struct{}) {
	again, reported := retry.Backoff{FirstWindow: firstUnstage, SecondWindow: lastUnstage, MaxWindow: lastUnstage}, ""
	for {
		if _, ended := again.Wait(k.life, 0, wake); ended != nil {
			return
		}
		ctx, stop := context.WithTimeout(k.life, mountTime)
		err := k.withLock(ctx, id, "", func(ctx context.Context) error { return k.unstageVolume(ctx, id) })
		stop()
		if err != nil && k.life.Err() == nil && err.Error() != reported {
			reported = err.Error()
			k.cfg.Log.Warn("a volume that no pod uses cannot be unmounted: retrying", "volume", id, "error", err)
		}
		if k.endUnstage(id) {
			return
		}
	}
}

// endUnstage removes the loop of a volume and returns true, unless the volume is staged and no pod uses it.
func (k *Mounter) endUnstage(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	staged, used := false, false
	for key := range k.rows {
		staged = staged || key.Volume == id && key.Pod == ""
		used = used || key.Volume == id && key.Pod != ""
	}
	if staged && !used {
		return false
	}
	delete(k.unstages, id)
	return true
}

// The windows of the waits between two attempts to unstage a volume.
const (
	firstUnstage = time.Second
	lastUnstage  = 2 * time.Minute
)

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

// unstageVolume unmounts a volume for the node. It does nothing if a pod uses the volume. If it fails, it is repeated. The caller holds the
// volume's lock.
func (k *Mounter) unstageVolume(ctx context.Context, id string) error {
	if k.usedByOthers(id, "") {
		return nil
	}
	unstaged := false
	defer func() { // also if the driver panics
		if !unstaged {
			k.repeatUnstage(id)
		}
	}()
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
	unstaged = true
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

// sweepOrphans calls unmountUnrecorded, and waits for it at most mountTime. The unmount of a device that does not respond never returns, so
// there is at most one call at a time.
func (k *Mounter) sweepOrphans(ctx context.Context) error {
	select {
	case k.orphans.busy <- struct{}{}:
	default:
		return errors.New("the unmount of a volume that is not in the database has not returned yet")
	}
	ended := make(chan error, 1)
	go func() {
		err := k.orphans.unmount()
		<-k.orphans.busy // before the caller can sweep again
		ended <- err
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
