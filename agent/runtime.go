package agent

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/bundle"
	"github.com/islet-edge/islet/agent/engine"
	"github.com/islet-edge/islet/agent/pod/figures"
	"github.com/islet-edge/islet/agent/pod/life/observe"
	"github.com/islet-edge/islet/agent/pod/life/rebuild"
	"github.com/islet-edge/islet/runtime/cri"
)

// runtimeParts contains the container runtime and its observer.
type runtimeParts struct {
	*node
	rt       *engine.Containers
	figures  *figures.Figures
	observer *observe.Observer
	bundles  *bundle.Node
}

func openRuntime(ctx context.Context, n *node) (r *runtimeParts, err error) {
	r = &runtimeParts{node: n}
	if r.rt, err = engine.Open(ctx, engine.Config{
		Config: r.cfg, Store: r.store, ImagesChanged: r.laterParts.imagesChanged,
		ImagesRemoved:  func() { r.laterParts.verifier.get().PruneRecords(ctx) },
		NetworkChanged: r.networkChanged, OnLeave: r.storeEndedPods, RecordEvent: r.events.Record,
		Hold: r.configStart.OnTrial(), RemoveOnly: r.configStart.RemoveOnly, Link: r.link, Log: r.log,
	}); err != nil {
		return nil, err
	}
	r.addCloser(r.rt.Close)
	r.figures = figures.New(r.rt.Operations, r.rt.Cgroups.Unified(), r.configStart.Began)
	r.cfg.VisitFeatures(r.figures.Feature)
	r.observer = observe.New(observe.Config{
		Runtime: r.rt.Runtime, Changed: r.laterParts.pokePod, OnRelist: r.figures.ObserveRelist,
		Root: r.cfg.Dirs.Root, Sync: r.cfg.Kubelet.SyncFrequency.Duration, Log: r.log,
	})
	r.bundles, err = bundle.OpenFor(r.cfg, r.configStart, r.machine.Labels, r.link, r.rt.BundleImages(), r.store, r.log)
	return r, err
}

// networkChanged retries the pods, also rejected ones, after a change of the network or the runtime, and sends the Node object at once.
func (n *node) networkChanged() {
	n.laterParts.nodeChanged()
	n.laterParts.retryPods()
	n.laterParts.pokeNode()
}

// storeEndedPods stores the results of pods that have ended in a runtime that the node no longer uses.
func (n *node) storeEndedPods(ctx context.Context, rt cri.Runtime) error {
	view := observe.New(observe.Config{Root: n.cfg.Dirs.Root, Runtime: rt, Changed: func(types.UID) {}, Log: n.log})
	if err := view.Relist(ctx); err != nil {
		return err
	}
	return rebuild.FinalStatuses{
		Pods: n.desired.List(), View: view, Store: n.store, Host: n.machine.Host(), State: n.cfg.Dirs.State, Now: time.Now(), Log: n.log,
	}.StoreAll(ctx)
}
