package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/metrics/room"
)

// limits remembers when pods with limits were measured. Their files are looked at again
// when a disk has become fuller, and after some time: what one pod writes another may have
// given back.
type limits struct {
	any  bool      // there are such pods
	at   time.Time // of the last measure
	used [2]uint64 // of the disks of node and containers, then
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

// keepLimits evicts the pods that exceed a limit on their files. True: there was one.
func (e *Eviction) keepLimits(ctx context.Context, r room.Room, d Disks) (evicted bool) {
	if !e.isolates() {
		return false
	}
	var limited []*v1.Pod
	for _, p := range e.c.Pods.Active() {
		if !critical(p) && Limited(p) {
			limited = append(limited, p)
		}
	}
	l, now := &e.limits, time.Now()
	if l.any = len(limited) > 0; !l.any {
		l.at = time.Time{}
		return false
	}
	used := [2]uint64{taken(r.Node), taken(r.Container)}
	fuller := used[0] > l.used[0]+growth || used[1] > l.used[1]+growth
	if !fuller && now.Sub(l.at) < latest {
		l.used = [2]uint64{min(used[0], l.used[0]), min(used[1], l.used[1])}
		return false
	}
	l.at, l.used = now, used
	for _, p := range limited {
		st, err := e.c.Figures.Storage(ctx, p, soonest/2)
		if err != nil {
			e.c.Log.Warn("the files of a pod cannot be measured", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "error", err)
			continue
		}
		limit, message := Exceeded(Candidate{p, st}, d.Container)
		if limit != "" && e.evict(ctx, p, plan.End{Reason: plan.Evicted, Message: message, Grace: atOnce}, string(limit), nil) {
			evicted = true
		}
		if ctx.Err() != nil {
			break
		}
	}
	return evicted
}

func taken(d room.Disk) uint64 { return d.Bytes.Total - min(d.Bytes.Free, d.Bytes.Total) }
