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

// limits contains the state of the checks that enforce the limits on pods' files. Pods with such limits are measured
// again when more of a disk is used. They are also measured at an interval, because one pod may use the space that
// another one has freed.
type limits struct {
	present    bool      // some pods have limits
	measuredAt time.Time // when the last measurement started
	used       [2]uint64 // used bytes of the node's and the containers' disks at the last check

	measuring  chan []excess // nil if no measurement is running
	background sync.WaitGroup
}

// An excess describes a pod that exceeds a limit on its files.
type excess struct {
	pod     *v1.Pod
	limit   Limit
	message string
}

// growth is the increase of disk use, in bytes, that triggers a measurement.
const growth = 1 << 20

// nextLook returns the time until the limits must be checked again.
func (l *limits) nextLook() time.Duration {
	if l.present {
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
func (e *Eviction) checkLimits(ctx context.Context, r room.Room, d Disks) {
	if !e.enforcesLimits() {
		return
	}
	var limited []*v1.Pod
	for _, p := range e.c.Pods.Active() {
		if !demand.HasSystemPriority(p) && HasMeasuredLimit(p) {
			limited = append(limited, p)
		}
	}
	l, now := &e.limits, time.Now()
	if l.present = len(limited) > 0; !l.present {
		l.measuredAt = time.Time{}
		return
	}
	used := [2]uint64{usedBytes(r.Node), usedBytes(r.Container)}
	fuller := used[0] > l.used[0]+growth || used[1] > l.used[1]+growth
	if !fuller && now.Sub(l.measuredAt) < maxInterval {
		l.used = [2]uint64{min(used[0], l.used[0]), min(used[1], l.used[1])}
		return
	}
	if l.measuring != nil {
		return
	}
	l.measuredAt, l.used = now, used
	found := make(chan []excess, 1)
	l.measuring = found
	l.background.Go(func() { found <- e.measure(ctx, limited, d.Container) })
}

// measure returns the pods that exceed a limit.
func (e *Eviction) measure(ctx context.Context, pods []*v1.Pod, layers bool) (out []excess) {
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
	e.limits.measuring = nil
	for _, x := range found {
		if ctx.Err() != nil {
			return
		}
		e.evict(ctx, x.pod, plan.End{Reason: plan.Evicted, Message: x.message, Grace: atOnce}, string(x.limit), nil)
	}
}

func usedBytes(d room.Disk) uint64 { return d.Bytes.Total - min(d.Bytes.Free, d.Bytes.Total) }
