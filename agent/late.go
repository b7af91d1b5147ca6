package agent

import (
	"context"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/cluster"
	"github.com/islet-edge/islet/agent/engine/pulls"
	"github.com/islet-edge/islet/agent/pod/life/pods"
	"github.com/islet-edge/islet/agent/pod/life/worker"
	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/resource"
	"github.com/islet-edge/islet/agent/resource/eviction"
	"github.com/islet-edge/islet/agent/volume"
	"github.com/islet-edge/islet/agent/volume/objects"
	"github.com/islet-edge/islet/agent/volume/podvolumes"
)

// laterParts contains parts that other parts may call at any time, even before they are built. The calls may come from any
// goroutine. The comment of each method says what a call does before the cell is set.
type laterParts struct {
	workers        cell[*worker.Set]
	executor       cell[*worker.Executor]
	pods           cell[*pods.Pods]
	cluster        cell[*cluster.Cluster]    // stays nil if the node stands alone
	objects        cell[*objects.Objects]    // stays nil if the node stands alone
	verifier       cell[*pulls.Verifier]     // stays nil if every pod may use every image; its methods accept nil
	claims         cell[*volume.Claims]      // until it is set, only NodeChanged is called, which accepts nil
	volumes        cell[*podvolumes.Volumes] // only Run calls it, after the cell was set
	upkeep         cell[*resource.Upkeep]
	eviction       cell[*eviction.Eviction]
	sweepLeftovers cell[func(context.Context)]
}

// A cell contains one part of the agent, which set stores once. Before set was called, get returns nil.
type cell[T any] struct{ part atomic.Value }

func (c *cell[T]) get() T {
	part, _ := c.part.Load().(T)
	return part
}

// set panics if the cell is set already, because other parts may use the former value.
func (c *cell[T]) set(part T) {
	if !c.part.CompareAndSwap(nil, part) {
		panic("a cell of laterParts is set twice")
	}
}

// pokePod starts another round of a pod's worker. Before there are workers, pokePod, retryPod, retryPods and restartContainer
// have no effect. They are not needed then, because a worker starts with the desired pod and the running containers.
func (l *laterParts) pokePod(uid types.UID) {
	if w := l.workers.get(); w != nil {
		w.Poke(uid)
	}
}

// retryPod makes a pod's worker retry failed actions now.
func (l *laterParts) retryPod(uid types.UID) {
	if w := l.workers.get(); w != nil {
		w.RetryPod(uid)
	}
}

func (l *laterParts) retryPods() {
	if w := l.workers.get(); w != nil {
		w.Retry()
	}
}

func (l *laterParts) restartContainer(uid types.UID, container, id string, grace time.Duration) {
	if w := l.workers.get(); w != nil {
		w.Restart(uid, container, plan.Restart{ID: id, Grace: grace})
	}
}

// Poke calls pokePod. pods.Workers requires this method.
func (l *laterParts) Poke(uid types.UID) { l.pokePod(uid) }

// Input calls worker.Set.Input. pods.Workers requires this method.
func (l *laterParts) Input(uid types.UID) plan.Input {
	if w := l.workers.get(); w != nil {
		return w.Input(uid)
	}
	return plan.Input{UID: uid}
}

// startDelay returns how long a pod has been waiting for its worker. It is 0 before there are workers.
func (l *laterParts) startDelay() time.Duration {
	if w := l.workers.get(); w != nil {
		return w.StartDelay()
	}
	return 0
}

// pokePods pokes every worker.
func (l *laterParts) pokePods() {
	if w := l.workers.get(); w != nil {
		w.PokeAll()
	}
}

// podsChanged returns the result of pods.Pods.Changed. Only Run calls it, after the cell was set.
func (l *laterParts) podsChanged() <-chan struct{} { return l.pods.get().Changed() }

// imagesChanged retries failed image pulls.
func (l *laterParts) imagesChanged() {
	if e := l.executor.get(); e != nil {
		e.ImagesChanged()
	}
	l.retryPods()
}

// listPods returns the pods of this node with their statuses. It returns nil before the pods are opened.
func (l *laterParts) listPods() []*v1.Pod {
	if p := l.pods.get(); p != nil {
		return p.List()
	}
	return nil
}

// nodeChanged evaluates rejected pods again, because the node has changed. Before the pods are opened, no pod is rejected.
func (l *laterParts) nodeChanged() {
	if p := l.pods.get(); p != nil {
		p.NodeChanged()
	}
}

// statusChanged recomputes the status of a pod.
func (l *laterParts) statusChanged(uid types.UID) {
	if p := l.pods.get(); p != nil {
		p.StatusChanged(uid)
	}
}

// pokeNode sends the Node object to the API server at once. A call before the cluster part exists has no
// effect: that part sends the Node when it starts.
func (l *laterParts) pokeNode() {
	if c := l.cluster.get(); c != nil {
		c.Node.Poke()
	}
}

// nodeUID returns the UID of the Node object. It is empty if the UID is not known.
func (l *laterParts) nodeUID() types.UID {
	if c := l.cluster.get(); c != nil {
		return c.NodeUID()
	}
	return ""
}

// pressureConditions returns the node's pressure conditions, such as MemoryPressure. There are none before the first measurement.
func (l *laterParts) pressureConditions() []v1.NodeConditionType {
	if e := l.eviction.get(); e != nil {
		return e.Conditions()
	}
	return nil
}

func (l *laterParts) isBarred(uid types.UID) bool {
	e := l.eviction.get()
	return e != nil && e.IsBarred(uid)
}

func (l *laterParts) reportOutOfMemory(ago time.Duration) {
	if e := l.eviction.get(); e != nil {
		e.OutOfMemory(ago)
	}
}

// flashExceeded reports whether today's flash writes exceed the allowed amount. It returns false before the first measurement.
func (l *laterParts) flashExceeded() bool {
	u := l.upkeep.get()
	return u != nil && u.Flash.BudgetExceeded()
}
