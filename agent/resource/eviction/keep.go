package eviction

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/metrics/room"
)

// limits remembers when pods with limits were measured. Their files are looked at again
// when a disk has become fuller, and after some time: what one pod writes another may have
// given back.
type limits struct {
	any  bool      // there are such pods
	at   time.Time // when the last measure began
	used [2]uint64 // of the disks of node and containers, then

	measuring  chan []excess // nil: nobody does
	background sync.WaitGroup
}

// An excess is a pod that exceeds a limit.
type excess struct {
	pod     *v1.Pod
	limit   Limit
	message string
}

// growth is how much fuller a disk gets before pods are measured: no less of a limit counts.
const growth = 1 << 20

// pause is how long limits need no look.
func (l *limits) pause() time.Duration {
	if l.any {
		return soonest
	}
	return latest
}

// isolates reports whether limits on files count here.
func (e *Eviction) isolates() bool {
	on := e.c.Kubelet.LocalStorageCapacityIsolation
	return on == nil || *on
}

// keepLimits has the pods with limits measured if it is time to. To count files may take
// minutes, and pressure does not wait for it.
func (e *Eviction) keepLimits(ctx context.Context, r room.Room, d Disks) {
	if !e.isolates() {
		return
	}
	var limited []*v1.Pod
	for _, p := range e.c.Pods.Active() {
		if !demand.System(p) && Limited(p) {
			limited = append(limited, p)
		}
	}
	l, now := &e.limits, time.Now()
	if l.any = len(limited) > 0; !l.any {
		l.at = time.Time{}
		return
	}
	used := [2]uint64{taken(r.Node), taken(r.Container)}
	fuller := used[0] > l.used[0]+growth || used[1] > l.used[1]+growth
	if !fuller && now.Sub(l.at) < latest {
		l.used = [2]uint64{min(used[0], l.used[0]), min(used[1], l.used[1])}
		return
	}
	if l.measuring != nil {
		return
	}
	l.at, l.used = now, used
	found := make(chan []excess, 1)
	l.measuring = found
	l.background.Go(func() { found <- e.measure(ctx, limited, d.Container) })
}

// measure says which of pods exceed a limit.
func (e *Eviction) measure(ctx context.Context, pods []*v1.Pod, layers bool) (out []excess) {
	defer func() {
		if r := recover(); r != nil {
			e.c.Log.Error("the files of pods are not measured", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	for _, p := range pods {
		st, err := e.c.Figures.Storage(ctx, p, soonest/2)
		if ctx.Err() != nil {
			return out
		}
		if err != nil {
			e.c.Log.Warn("the files of a pod cannot be measured", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "error", err)
			continue
		}
		if limit, message := Exceeded(Candidate{p, st}, layers); limit != "" {
			out = append(out, excess{p, limit, message})
		}
	}
	return out
}

// punish evicts the pods that were found to exceed a limit.
func (e *Eviction) punish(ctx context.Context, found []excess) {
	e.limits.measuring = nil
	for _, x := range found {
		if ctx.Err() != nil {
			return
		}
		e.evict(ctx, x.pod, plan.End{Reason: plan.Evicted, Message: x.message, Grace: atOnce}, string(x.limit), nil)
	}
}

func taken(d room.Disk) uint64 { return d.Bytes.Total - min(d.Bytes.Free, d.Bytes.Total) }
