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

// A cell holds a part that is built after other parts that call it, perhaps from goroutines that
// run already. It is set once. Until then get returns nil. T is a pointer or a func: pointers share one
// instance of the code.
type cell[T any] struct{ p atomic.Pointer[T] }

func (c *cell[T]) set(part T) {
	if !c.p.CompareAndSwap(nil, &part) {
		panic("a part was built twice")
	}
}

func (c *cell[T]) get() (part T) {
	if p := c.p.Load(); p != nil {
		part = *p
	}
	return part
}

// late has a cell for each part that is needed before it is built, with the calls that are made
// through it, and what they do until the cell is set.
type late struct {
	workers  podWake
	pods     podList
	cluster  nodeWake // stays empty if the node stands alone
	pressure pressure
	flash    flashBudget
	images   imageWake
	guard    cell[*pulls.Guard]     // stays empty if images may be used by every pod
	objects  cell[*objects.Objects] // stays empty if the node stands alone
	volumes  cell[*podvolumes.Volumes]
	claims   cell[*volume.Claims]
	sweep    cell[func(context.Context)]
}

// A podWake wakes the workers of pods. Calls before there are workers have no effect: a worker begins
// with what is wanted and what runs by then.
type podWake struct{ cell[*worker.Set] }

func (w *podWake) Poke(uid types.UID) {
	if s := w.get(); s != nil {
		s.Poke(uid)
	}
}

func (w *podWake) PokeAll() {
	if s := w.get(); s != nil {
		s.PokeAll()
	}
}

// Retry has the worker of a pod repeat failed actions now.
func (w *podWake) Retry(uid types.UID) {
	if s := w.get(); s != nil {
		s.RetryPod(uid)
	}
}

func (w *podWake) RetryAll() {
	if s := w.get(); s != nil {
		s.Retry()
	}
}

func (w *podWake) Restart(uid types.UID, container, id string, grace time.Duration) {
	if s := w.get(); s != nil {
		s.Restart(uid, container, plan.Ask{ID: id, Grace: grace})
	}
}

// Input is worker.Set.Input.
func (w *podWake) Input(uid types.UID) plan.Input {
	if s := w.get(); s != nil {
		return s.Input(uid)
	}
	return plan.Input{UID: uid}
}

func (w *podWake) Overdue() time.Duration {
	if s := w.get(); s != nil {
		return s.Overdue()
	}
	return 0
}

// A podList is the pods of this node with their statuses. There are none before it is set, and no decision
// about any that a change of the node could affect.
type podList struct{ cell[*pods.Pods] }

func (l *podList) List() []*v1.Pod {
	if p := l.get(); p != nil {
		return p.List()
	}
	return nil
}

func (l *podList) Changed() <-chan struct{} { return l.get().Changed() }

func (l *podList) NodeChanged() {
	if p := l.get(); p != nil {
		p.NodeChanged()
	}
}

func (l *podList) StatusChanged(uid types.UID) {
	if p := l.get(); p != nil {
		p.StatusChanged(uid)
	}
}

// A nodeWake has the Node object sent to the API server at once. The first one is sent without it.
type nodeWake struct{ cell[*cluster.Cluster] }

func (w *nodeWake) Poke() {
	if c := w.get(); c != nil {
		c.Node.Poke()
	}
}

// UID is that of the Node object; empty: it is not known.
func (w *nodeWake) UID() types.UID {
	if c := w.get(); c != nil {
		return c.NodeUID()
	}
	return ""
}

// A pressure tells which resources of the machine run out. Before the first measurement none does.
type pressure struct{ cell[*eviction.Eviction] }

func (p *pressure) Conditions() []v1.NodeConditionType {
	if e := p.get(); e != nil {
		return e.Conditions()
	}
	return nil
}

func (p *pressure) Barred(uid types.UID) bool {
	e := p.get()
	return e != nil && e.Barred(uid)
}

func (p *pressure) OutOfMemory(ago time.Duration) {
	if e := p.get(); e != nil {
		e.OutOfMemory(ago)
	}
}

// A flashBudget tells whether more was written to flash today than is allowed. Before the first
// measurement it was not.
type flashBudget struct{ cell[*resource.Upkeep] }

func (b *flashBudget) Exceeded() bool {
	u := b.get()
	return u != nil && u.Flash.Exceeded()
}

// An imageWake has images pulled again that could not be pulled. Before there are workers none was.
type imageWake struct{ cell[*worker.Executor] }

func (w *imageWake) Changed() {
	if e := w.get(); e != nil {
		e.ImagesChanged()
	}
}
