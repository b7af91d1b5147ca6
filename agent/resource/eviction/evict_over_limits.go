package eviction

import (
	"context"
	"runtime/debug"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/metrics/headroom"
)

// podLimits contains the state of the checks that enforce the limits on pods' files. Pods with such limits are measured
// again when more of a disk is used. They are also measured at an interval, because one pod may use the space that
// another one has freed.
type podLimits struct {
	anyLimits  bool      // some pods have limits
	measuredAt time.Time // when the last measurement started
	used       [2]uint64 // used bytes of the node's and the containers' disks at the last check

	pendingResult chan []excess // nil if no measurement is running
	background    sync.WaitGroup
}

// An excess describes a pod that exceeds a limit on its files.
type excess struct {
	pod     *v1.Pod
	limit   Limit
	message string
}

// measureGrowth is the increase of disk use, in bytes, that triggers a measurement.
const measureGrowth = 1 << 20

// nextLook returns the time until the limits must be checked again.
func (l *podLimits) nextLook() time.Duration {
	if l.anyLimits {
		return minInterval
	}
	return maxInterval
}

// enforcesLimits reports whether limits on files are enforced on this node.
func (e *Eviction) enforcesLimits() bool {
	on := e.c.Kubelet.LocalStorageCapacityIsolation
	return on == nil || *on
}

// checkLimits starts a measurement of the pods with limits if one is due. Counting files may take minutes, so it
// happens outside of Run's goroutine.
func (e *Eviction) checkLimits(ctx context.Context, r headroom.Room, d Disks) {
	if !e.enforcesLimits() {
		return
	}
	var limited []*v1.Pod
	for _, p := range e.c.Pods.Active() {
		if !demand.HasSystemPriority(p) && HasMeasuredLimit(p) {
			limited = append(limited, p)
		}
	}
	l, now := &e.podLimits, time.Now()
	if l.anyLimits = len(limited) > 0; !l.anyLimits {
		l.measuredAt = time.Time{}
		return
	}
	used := [2]uint64{usedBytes(r.Node), usedBytes(r.Container)}
	fuller := used[0] > l.used[0]+measureGrowth || used[1] > l.used[1]+measureGrowth
	if !fuller && now.Sub(l.measuredAt) < maxInterval {
		l.used = [2]uint64{min(used[0], l.used[0]), min(used[1], l.used[1])}
		return
	}
	if l.pendingResult != nil {
		return
	}
	l.measuredAt, l.used = now, used
	found := make(chan []excess, 1)
	l.pendingResult = found
	l.background.Go(func() { found <- e.measurePods(ctx, limited, d.Container) })
}

// measurePods returns the pods that exceed a limit.
func (e *Eviction) measurePods(ctx context.Context, pods []*v1.Pod, layers bool) (out []excess) {
	defer func() {
		if r := recover(); r != nil {
			e.c.Log.Error("cannot measure the files of pods", "panic", r, "stack", string(debug.Stack()))
		}
	}()
	for _, p := range pods {
		st, err := e.c.Figures.Storage(ctx, p, minInterval/2)
		if ctx.Err() != nil {
			return out
		}
		if err != nil {
			e.c.Log.Warn("cannot measure the files of a pod", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "error", err)
			continue
		}
		if limit, message := FindExceeded(Candidate{p, st}, layers); limit != "" {
			out = append(out, excess{p, limit, message})
		}
	}
	return out
}

// evictExceeding evicts the pods that exceed a limit.
func (e *Eviction) evictExceeding(ctx context.Context, found []excess) {
	e.podLimits.pendingResult = nil
	for _, x := range found {
		if ctx.Err() != nil {
			return
		}
		e.evict(ctx, x.pod, plan.End{Reason: plan.Evicted, Message: x.message, Grace: immediateGrace}, string(x.limit), nil)
	}
}

func usedBytes(d headroom.Disk) uint64 { return d.Bytes.Total - min(d.Bytes.Free, d.Bytes.Total) }
