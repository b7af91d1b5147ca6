package csi

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/retry"
)

// republishEvery is Config.Every: a kubelet publishes each time it looks at the pod.
const republishEvery = 80 * time.Second

// A published is a volume of a pod that was published by this run of the agent, or by one before.
type published struct {
	volume storage.Volume
	staged string
	use    storage.Use
	turn   chan struct{} // capacity 1: full while the driver is asked

	// The lock of Drivers guards these.
	repeat  bool // requiresRepublish
	failing bool // the log says so
}

func (p *published) free() { <-p.turn }

// taken notes a volume of a pod, and waits until the driver is not asked about it.
func (d *Drivers) taken(ctx context.Context, v storage.Volume, staged string, u storage.Use) (*published, error) {
	d.mu.Lock()
	p := d.uses[u.Path]
	if p == nil {
		p = &published{turn: make(chan struct{}, 1)}
		d.uses[u.Path] = p
	}
	d.mu.Unlock()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p.volume, p.staged, p.use = v, staged, u
	return p, nil
}

// Adopt notes a volume that a run of the agent before this one has published: it is published
// again if its driver wants that, without waiting for a container to start.
func (d *Drivers) Adopt(v storage.Volume, staged string, u storage.Use) {
	if check(v) != nil {
		return
	}
	object, err := d.object(u.Pod, v.Source.CSI.Driver)
	repeat := err == nil && object != nil && isTrue(object.Spec.RequiresRepublish)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uses[u.Path] != nil {
		return // a container has started since
	}
	d.uses[u.Path] = &published{volume: v, staged: staged, use: u, turn: make(chan struct{}, 1), repeat: repeat}
	if repeat {
		select {
		case d.again <- struct{}{}:
		default:
		}
	}
}

// drop forgets a volume of a pod, once the driver is not asked about it any more.
func (d *Drivers) drop(ctx context.Context, path string, uid types.UID) error {
	d.mu.Lock()
	for _, pods := range d.waiting {
		delete(pods, uid)
	}
	maps.DeleteFunc(d.waiting, func(_ string, pods map[types.UID]bool) bool { return len(pods) == 0 })
	d.mu.Unlock()
	p := d.use(path)
	if p == nil {
		return nil
	}
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("the driver is asked about the volume: %w", ctx.Err())
	}
	defer p.free()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.uses, path)
	return nil
}

// use gives what is known of a volume at a path; nil: nothing.
func (d *Drivers) use(path string) *published {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.uses[path]
}

// Run publishes volumes again and again whose drivers want it, such as those that write
// tokens into them, until ctx ends. While there are none it waits.
// https://kubernetes-csi.github.io/docs/csi-driver-object.html
func (d *Drivers) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.again:
		}
		for again := true; again; {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(retry.Around(d.cfg.Every)):
			}
			again = d.round(ctx, &all)
		}
	}
}

// round starts to publish those that are to be; it reports whether there are any. One whose
// driver has not answered since the last round is left alone.
func (d *Drivers) round(ctx context.Context, all *sync.WaitGroup) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	some := false
	for path, p := range d.uses {
		if !p.repeat {
			continue
		}
		some = true
		select {
		case p.turn <- struct{}{}:
		default:
			continue
		}
		all.Go(func() {
			defer p.free()
			if d.use(path) == p {
				d.repeat(ctx, p)
			}
		})
	}
	return some
}

// repeat publishes a volume again. That it fails harms nobody: the pod has what it had.
func (d *Drivers) repeat(ctx context.Context, p *published) {
	object, err := d.publish(ctx, p)
	d.mu.Lock()
	news := (err != nil) != p.failing
	p.failing = err != nil
	p.repeat = err != nil || object != nil && isTrue(object.Spec.RequiresRepublish)
	d.mu.Unlock()
	if err != nil && news && ctx.Err() == nil {
		d.cfg.Log.Warn("a volume cannot be published again, as its driver wants", "driver", p.volume.Source.CSI.Driver, "volume", p.volume.Name, "pod", p.use.Pod.Namespace+"/"+p.use.Pod.Name, "uid", p.use.Pod.UID, "error", err)
	}
}
