package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/object"
)

// objects brings what pods use of the API to them: by the cache before they start,
// and into their volumes when it changes. It is a hook; it comes before the volumes.
type objects struct {
	*object.Cache
	a    *agent
	wake chan struct{} // capacity 1: some pod is dirty

	mu    sync.Mutex
	dirty map[types.UID]struct{}
}

// openObjects takes over what the last run knew for the pods that are wanted.
func openObjects(ctx context.Context, a *agent, client *kube.Client, now func() time.Time) (*objects, error) {
	o := &objects{a: a, wake: make(chan struct{}, 1), dirty: map[types.UID]struct{}{}}
	o.Cache = object.New(object.Config{
		Client: client, Store: a.store, Strategy: string(a.cfg.Kubelet.ConfigMapAndSecretChangeDetectionStrategy), Changed: o.changed, Now: now, Log: a.log,
	})
	var pods []*v1.Pod
	for _, d := range a.desired.List() {
		if d.Source == desired.API {
			pods = append(pods, d.Pod)
			o.changed(d.Pod.UID) // its volumes may be those of before a power loss
		}
	}
	if err := o.Load(ctx, pods); err != nil {
		return nil, fmt.Errorf("load what pods use of the API: %w", err)
	}
	return o, nil
}

// changed says that something that a pod shows in its volumes has changed: an object,
// or a label or annotation of the pod itself. It never blocks.
func (o *objects) changed(uid types.UID) {
	o.mu.Lock()
	o.dirty[uid] = struct{}{}
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// Run keeps the objects, and the volumes that show them, up to date until ctx ends.
func (o *objects) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.Cache.Run(ctx) })
	g.Go(func() error {
		for {
			select {
			case <-o.wake:
				o.refresh()
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// refresh brings the volumes of pods that changed up to date, and lets those start
// that waited for something.
func (o *objects) refresh() {
	o.mu.Lock()
	dirty := slices.Collect(maps.Keys(o.dirty))
	clear(o.dirty)
	o.mu.Unlock()
	for _, uid := range dirty {
		if d, ok := o.a.desired.Get(uid); ok && !d.Deleting {
			if err := o.a.volumes.Refresh(d.Pod); err != nil {
				o.a.log.Warn("volumes of a pod could not be brought up to date", "pod", d.Pod.Name, "uid", uid, "error", err)
			}
		}
		o.a.workers.RetryPod(uid)
	}
}
