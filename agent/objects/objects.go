// Package objects brings what pods use of the API to them: by the cache before they
// start, and into their volumes when it changes.
//
//	cache --Changed(uid)--> Objects --Refresh(pod)--> volumes
//	pods  --Changed(uid)-->         --Retry(uid)----> workers
package objects

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/dirty"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/object"
)

// Config is what Open needs.
type Config struct {
	Client   *kube.Client
	Store    object.Store
	Node     string // its name
	Strategy string // configMapAndSecretChangeDetectionStrategy
	Now      func() time.Time
	Desired  Desired
	Refresh  func(*v1.Pod) error // brings the volumes of a pod up to date
	Retry    func(types.UID)     // lets a pod start that waited for something
	Log      *slog.Logger
}

// Desired tells what is wanted. *desired.Desired is one.
type Desired interface {
	Get(types.UID) (desired.Pod, bool)
	List() []desired.Pod
}

// Objects is a hook; it comes before the volumes.
type Objects struct {
	*object.Cache
	c     Config
	dirty *dirty.Set[types.UID]
}

// Open takes over what the last run knew for the pods that are wanted.
func Open(ctx context.Context, c Config) (*Objects, error) {
	o := &Objects{c: c, dirty: dirty.New[types.UID]()}
	o.Cache = object.New(object.Config{Client: c.Client, Store: c.Store, Node: c.Node, Strategy: c.Strategy, Changed: o.Changed, Now: c.Now, Log: c.Log})
	var pods []*v1.Pod
	for _, d := range c.Desired.List() {
		if d.Source == desired.API {
			pods = append(pods, d.Pod)
			o.Changed(d.Pod.UID) // its volumes may be those of before a power loss
		}
	}
	if err := o.Load(ctx, pods); err != nil {
		return nil, fmt.Errorf("load what pods use of the API: %w", err)
	}
	return o, nil
}

// ForgetVersions has all objects listed anew: the control plane has another history.
func (o *Objects) ForgetVersions(ctx context.Context) {
	if err := o.Void(ctx); err != nil {
		o.c.Log.Error("the versions of ConfigMaps and Secrets are voided for this run of the agent only", "error", err)
	}
}

// Changed says that something that a pod shows in its volumes has changed: an object,
// or a label or annotation of the pod itself. It never blocks.
func (o *Objects) Changed(uid types.UID) { o.dirty.Add(uid) }

// Ended forgets what a pod uses of the API that is over, though it is still wanted.
func (o *Objects) Ended(ctx context.Context, pod *v1.Pod) error { return o.Release(ctx, pod.UID) }

// Run keeps the objects, and the volumes that show them, up to date until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return o.Cache.Run(ctx) })
	g.Go(func() error {
		for {
			select {
			case <-o.dirty.Wake():
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
func (o *Objects) refresh() {
	for _, uid := range o.dirty.Take() {
		if d, ok := o.c.Desired.Get(uid); ok && !d.Deleting {
			if err := o.c.Refresh(d.Pod); err != nil {
				o.c.Log.Warn("volumes of a pod could not be brought up to date", "pod", d.Pod.Namespace+"/"+d.Pod.Name, "uid", uid, "error", err)
			}
		}
		o.c.Retry(uid)
	}
}
