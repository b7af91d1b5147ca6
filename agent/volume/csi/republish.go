package csi

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/retry"
)

// republishEvery is the default of Config.Every. A kubelet republishes each time it syncs the pod.
const republishEvery = 80 * time.Second

// A publishedVolume is the record of a volume that was published for a pod, by this process or by a previous one.
type publishedVolume struct {
	volume storage.Volume
	staged string
	use    storage.Use
	busy   chan struct{} // a lock of capacity 1, which is locked while the driver is called for this volume

	// Drivers.mu guards the following fields.
	needsRepublish bool // requiresRepublish
	failing        bool // the failure has already been logged
}

func (p *publishedVolume) unlock() { <-p.busy }

// acquireUse registers a pod's volume and locks it. If a call to the driver for this volume is in progress,
// acquireUse waits for it.
func (d *Drivers) acquireUse(ctx context.Context, v storage.Volume, staged string, u storage.Use) (*publishedVolume, error) {
	d.mu.Lock()
	p := d.published[u.Path]
	if p == nil {
		p = &publishedVolume{busy: make(chan struct{}, 1)}
		d.published[u.Path] = p
	}
	d.mu.Unlock()
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.volume, p.staged, p.use = v, staged, u
	return p, nil
}

// Adopt registers a volume that a previous process published. If the driver requires republishing, the volume is
// republished even if no container starts.
func (d *Drivers) Adopt(v storage.Volume, staged string, u storage.Use) {
	if checkSource(v) != nil {
		return
	}
	object, err := d.driverObject(u.Pod, v.Source.CSI.Driver)
	repeat := err == nil && object != nil && podspec.IsTrue(object.Spec.RequiresRepublish)
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.published[u.Path]
	if p == nil {
		p = &publishedVolume{volume: v, staged: staged, use: u, busy: make(chan struct{}, 1)}
		d.published[u.Path] = p
	}
	if repeat && !p.needsRepublish { // the CSIDriver object may have been unknown at the first call
		p.needsRepublish = true
		select {
		case d.republishSignal <- struct{}{}:
		default:
		}
	}
}

// forgetUse removes the registration of a pod's volume. If a call to the driver for this volume is in progress,
// forgetUse waits for it first.
func (d *Drivers) forgetUse(ctx context.Context, path string, uid types.UID) error {
	d.mu.Lock()
	for _, pods := range d.waiting {
		delete(pods, uid)
	}
	maps.DeleteFunc(d.waiting, func(_ string, pods map[types.UID]bool) bool { return len(pods) == 0 })
	d.mu.Unlock()
	p := d.publishedAt(path)
	if p == nil {
		return nil
	}
	select {
	case p.busy <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("a call to the driver about the volume is in progress: %w", ctx.Err())
	}
	defer p.unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.published, path)
	return nil
}

// publishedAt returns the volume that is published at path, or nil.
func (d *Drivers) publishedAt(path string) *publishedVolume {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.published[path]
}

// Run republishes volumes whose drivers require this, until ctx ends. Such a driver writes new tokens into
// its volume, for example. While there are no such volumes, Run sleeps.
// https://kubernetes-csi.github.io/docs/csi-driver-object.html
func (d *Drivers) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.republishSignal:
		}
		for again := true; again; {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(retry.Jitter(d.cfg.Every)):
			}
			again = d.republishAll(ctx, &all)
		}
	}
}

// republishAll starts a publish call for each volume that requires republishing. It skips a volume whose previous
// call has not returned. It returns true if there are any such volumes.
func (d *Drivers) republishAll(ctx context.Context, all *sync.WaitGroup) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	some := false
	for path, p := range d.published {
		if !p.needsRepublish {
			continue
		}
		some = true
		select {
		case p.busy <- struct{}{}:
		default:
			continue
		}
		all.Go(func() {
			defer p.unlock()
			if d.publishedAt(path) == p {
				d.republishOne(ctx, p)
			}
		})
	}
	return some
}

// republishOne republishes a volume. If the call fails, the volume stays mounted, and the next
// republishAll retries the call.
func (d *Drivers) republishOne(ctx context.Context, p *publishedVolume) {
	object, err := d.publishVolume(ctx, p)
	d.mu.Lock()
	news := (err != nil) != p.failing
	p.failing = err != nil
	p.needsRepublish = err != nil || object != nil && podspec.IsTrue(object.Spec.RequiresRepublish)
	d.mu.Unlock()
	if err != nil && news && ctx.Err() == nil {
		d.cfg.Log.Warn("cannot republish a volume", "driver", p.volume.Source.CSI.Driver, "volume", p.volume.Name,
			"pod", p.use.Pod.Namespace+"/"+p.use.Pod.Name, "uid", p.use.Pod.UID, "error", err)
	}
}
