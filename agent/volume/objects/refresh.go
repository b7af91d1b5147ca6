package objects

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/local"
	"github.com/islet-edge/islet/internal/retry"
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
				for _, uid := range o.dirty.TakeAll() {
					o.refresh(uid)
					o.c.Retry(uid) // the pod may wait for an object
				}
			case <-o.repeat.Wake():
				for _, uid := range o.repeat.TakeAll() {
					o.refresh(uid)
				}
			case <-ctx.Done():
				return nil
			}
		}
	})
	return g.Wait()
}

// A failedRefresh is the state of a pod whose volumes could not be updated.
type failedRefresh struct {
	backoff retry.Backoff
	timer   *time.Timer // marks the pod again
	reason  string      // the last error in the log
}

// lastRefresh is the window of the longest wait before the volumes of a pod are updated again.
const lastRefresh = 2 * time.Minute

// refresh updates the volumes of a pod. If this fails, for example because the disk is full, refresh is repeated until it succeeds or until
// the pod is not desired any more, as in a kubelet. Without this, the pod would keep the old content until the next change of the object.
func (o *Objects) refresh(uid types.UID) {
	f := o.failed[uid]
	if f != nil {
		f.timer.Stop()
	}
	d, ok := o.c.Desired.Get(uid)
	if !ok || d.Deleting {
		delete(o.failed, uid)
		return
	}
	if d.Predecessor != "" && o.API != nil && !local.IsStatic(d.Pod) {
		o.fetch(d.Pod)
	}
	err := o.c.Refresh(d.Pod)
	if err == nil {
		delete(o.failed, uid)
		return
	}
	if f == nil {
		f = &failedRefresh{backoff: retry.Backoff{FirstWindow: time.Second, SecondWindow: lastRefresh, MaxWindow: lastRefresh}}
		o.failed[uid] = f
	}
	if f.reason != err.Error() {
		f.reason = err.Error()
		o.c.Log.Warn("cannot update the volumes of a pod: retrying", "pod", d.Pod.Namespace+"/"+d.Pod.Name, "uid", uid, "error", err)
	}
	f.timer = time.AfterFunc(f.backoff.Next(0), func() { o.repeat.Add(uid) })
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
