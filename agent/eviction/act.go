package eviction

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/demand"
	"github.com/islet-edge/islet/metrics/room"
)

// act reclaims what thresholds are on, or evicts a pod, for the first of them that anything
// can be done for. True: a pod was evicted, and what follows is to be seen at once.
func (e *Eviction) act(ctx context.Context, met []Threshold, o Observations, r room.Room, d Disks) bool {
	for len(met) > 0 && ctx.Err() == nil {
		evicted, left := e.actOn(ctx, met, o, r, d)
		if evicted {
			e.stuck = false
			return true
		}
		met = left
	}
	return false
}

// actOn does it for the first threshold. If no pod was evicted, left are those that are met
// still and for which something else could be done. It brings o up to date.
func (e *Eviction) actOn(ctx context.Context, met []Threshold, o Observations, r room.Room, d Disks) (evicted bool, left []Threshold) {
	t := met[0]
	what := t.Signal.meaning().resource
	others := func() []Threshold {
		return slices.DeleteFunc(slices.Clone(met), func(t Threshold) bool { return t.Signal.meaning().resource == what })
	}
	e.c.Events.Node(v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(what))
	if e.reclaim(ctx, t.Signal, d) {
		if after, err := e.c.Room.Now(ctx); err == nil {
			maps.Copy(o, observe(after))
		}
		if left := o.still(met); len(left) == 0 || left[0] != t {
			e.c.Log.Info("there is room again without evicting a pod", "signal", t.Signal)
			return false, left
		}
	}
	candidates, err := e.candidates(ctx, what)
	if err != nil {
		e.rests(what)
		e.c.Log.Error("pods cannot be ranked for eviction", "signal", t.Signal, "error", err)
		return false, others()
	}
	if what == v1.ResourceMemory { // figures take long where all wait for memory: whoever took it may have ended
		if machine, pods, err := e.c.Room.Memory(ctx); err == nil {
			maps.Copy(o, observe(room.Room{Memory: machine, Pods: pods}))
		}
		if left := o.still(met); len(left) == 0 || left[0] != t {
			e.c.Log.Info("there is memory again without evicting a pod", "signal", t.Signal)
			e.arm(o) // what the kernel was asked for before is past
			return false, left
		}
	}
	for _, t := range met {
		e.c.Counts.Age(string(t.Signal), time.Since(r.At))
	}
	for _, c := range Rank(candidates, t.Signal, d, o.missing(t)) {
		message, annotations := Message(c, t, o)
		end := plan.End{Reason: plan.Evicted, Message: message, Grace: e.grace(c.Pod, t), Disrupted: true}
		if e.evict(ctx, c.Pod, end, string(t.Signal), annotations) {
			return true, nil
		}
	}
	e.rests(what)
	if !e.stuck {
		e.stuck = true
		e.c.Log.Error("no pod can be evicted to make room: those that run are critical, or static with too little of it, or nothing is left of others", "signal", t.Signal)
	}
	return false, others()
}

// rests has the kernel's word on memory count for nothing for a while, since nothing could be
// done. What the kernel says is of memory only.
func (e *Eviction) rests(what v1.ResourceName) {
	if what == v1.ResourceMemory {
		e.quiet = time.Now().Add(soonest)
	}
}

// grace is what a pod gets to end.
func (e *Eviction) grace(p *v1.Pod, t Threshold) time.Duration {
	if !t.Soft || t.Grace == 0 {
		return atOnce
	}
	most := int64(e.c.Kubelet.EvictionMaxPodGracePeriod)
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		most = min(most, *g)
	}
	return max(time.Duration(most)*time.Second, atOnce)
}

// atOnce is the grace period when it has to be quick, a kubelet's.
const atOnce = time.Second

// evict ends a pod and waits until it has ended, or for long enough.
func (e *Eviction) evict(ctx context.Context, p *v1.Pod, end plan.End, why string, annotations map[string]string) bool {
	if !e.c.Pods.Evict(ctx, p.UID, end) {
		return false
	}
	if demand.Own(p) {
		e.mu.Lock()
		e.ended[p.UID] = time.Now()
		e.mu.Unlock()
	}
	e.c.Events.PodWith(annotations, p, v1.EventTypeWarning, plan.Evicted, end.Message)
	e.c.Counts.Evicted(why)
	e.c.Log.Warn("pod is evicted", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "signal", why, "by", e.by, "message", end.Message)
	late := time.NewTimer(cleanup)
	defer late.Stop()
	for {
		if e.c.Pods.Cleared(p.UID) {
			return true
		}
		select {
		case <-e.touched:
		case <-late.C:
			e.c.Log.Warn("the evicted pod does not end in time", "pod", p.Namespace+"/"+p.Name, "uid", p.UID)
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// reclaim has removed what no pod needs on the disk of a signal. False: there is nothing
// that could be.
func (e *Eviction) reclaim(ctx context.Context, s Signal, d Disks) bool {
	if e.c.Reclaim == nil || s.meaning().condition != v1.NodeDiskPressure {
		return false
	}
	in := d.parts(s)
	var errs []error
	if in.layers {
		errs = append(errs, e.c.Reclaim.ReclaimContainers(ctx))
	}
	if s == ImageFs || s == ImageInodes || in.logs && d.Image || !in.logs && !d.Image && !d.Container {
		errs = append(errs, e.c.Reclaim.ReclaimImages(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		e.c.Log.Warn("not everything could be reclaimed that no pod needs", "signal", s, "error", err)
	}
	return len(errs) > 0
}

// candidates are the active pods with the figures that a resource needs.
func (e *Eviction) candidates(ctx context.Context, what v1.ResourceName) ([]Candidate, error) {
	var list []stats.PodStats
	if what == v1.ResourceMemory || what == pids {
		all, err := e.c.Figures.Processes(ctx)
		if err != nil {
			return nil, err
		}
		list = all
	} else {
		all, err := e.c.Figures.Summary(ctx, false)
		if err != nil {
			return nil, err
		}
		list = all.Pods
	}
	by := map[string]*stats.PodStats{}
	for i := range list {
		by[list[i].PodRef.UID] = &list[i]
	}
	var out []Candidate
	for _, p := range e.c.Pods.Active() {
		out = append(out, Candidate{p, by[string(p.UID)]})
	}
	return out, nil
}
