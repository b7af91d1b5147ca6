package objects

import (
	"context"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/local"
)

// MarkOutdated marks a pod's volumes as possibly out of date, because an object that the pod uses, or a label or
// annotation of the pod, has changed. It never blocks.
func (o *Objects) MarkOutdated(uid types.UID) { o.dirty.Add(uid) }

// Run updates the objects, and the volumes that contain their data, until ctx ends. It also deletes the data of removed claims. If this has
// not ended when ctx ends, the next start continues.
func (o *Objects) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		o.Claims.Sweep(ctx)
		return nil
	})
	if o.API != nil {
		g.Go(func() error { return o.API.Run(ctx) })
		g.Go(func() error { return o.Certs.Run(ctx) })
	}
	g.Go(func() error {
		for {
			select {
			case <-o.dirty.Wake():
				o.refreshMarked()
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// refreshMarked updates the volumes of pods that were marked, and retries pods that waited for an object.
func (o *Objects) refreshMarked() {
	for _, uid := range o.dirty.TakeAll() {
		if d, ok := o.c.Desired.Get(uid); ok && !d.Deleting {
			if d.Predecessor != "" && o.API != nil && !local.IsStatic(d.Pod) {
				o.fetch(d.Pod)
			}
			if err := o.c.Refresh(d.Pod); err != nil {
				o.c.Log.Warn("cannot update the volumes of a pod",
					"pod", d.Pod.Namespace+"/"+d.Pod.Name, "uid", uid, "error", err)
			}
		}
		o.c.Retry(uid)
	}
}

// fetch requests the objects of a pod that waits for the end of an earlier pod with its name, because the link may be down when the pod can
// start.
func (o *Objects) fetch(pod *v1.Pod) {
	o.API.Fetch(pod)
	if d, ok := o.c.Desired.Get(pod.UID); ok && !d.Deleting {
		return
	}
	if err := o.API.Release(context.Background(), pod.UID); err != nil { // the pod's own Release may have been earlier
		o.c.Log.Warn("cannot release the objects of a pod", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID, "error", err)
	}
}
