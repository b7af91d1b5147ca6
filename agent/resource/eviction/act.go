package eviction

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/metrics/room"
)

// act evicts a pod for the first of the thresholds that anything can be done for. True: a pod
// was evicted, and what follows is to be seen at once.
func (e *Eviction) act(ctx context.Context, met []Threshold, o Observations, d Disks) bool {
	for len(met) > 0 && ctx.Err() == nil {
		evicted, left := e.actOn(ctx, met, o, d)
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
func (e *Eviction) actOn(ctx context.Context, met []Threshold, o Observations, d Disks) (evicted bool, left []Threshold) {
	t := met[0]
	if t.onDisk() && e.files.found == nil {
		if !e.files.lull.holds(met, o, time.Now()) {
			e.clear(ctx, met, d)
		}
		return false, slices.DeleteFunc(slices.Clone(met), Threshold.onDisk)
	}
	what := t.Signal.meaning().resource
	others := func() []Threshold {
		return slices.DeleteFunc(slices.Clone(met), func(t Threshold) bool { return t.Signal.meaning().resource == what })
	}
	if !t.onDisk() {
		e.attempt(what)
	}
	candidates, at, err := e.candidates(ctx, t)
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
		e.c.Counts.Age(string(t.Signal), time.Since(at))
	}
	ranked := Rank(candidates, t.Signal, d, o.worth(t))
	if t.onDisk() {
		e.files.found.some = e.files.found.some || len(ranked) > 0
	}
	for _, c := range ranked {
		message, annotations := Message(c, t, o)
		end := plan.End{Reason: plan.Evicted, Message: message, Grace: e.grace(c.Pod, t), Disrupted: true}
		if e.evict(ctx, c.Pod, end, string(t.Signal), annotations) {
			return true, nil
		}
	}
	e.rests(what)
	if !e.stuck {
		e.stuck = true
		e.c.Log.Error("no pod can be evicted to make room: each is critical, holds too little of the missing resource, or has ended already", "signal", t.Signal)
		if t.onDisk() && o.below(t, false) {
			e.c.Events.Node(v1.EventTypeWarning, foreignFiles, foreign(candidates, t, o, d))
		}
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

// candidates are the active pods with the figures that a threshold needs, and since when those are.
func (e *Eviction) candidates(ctx context.Context, t Threshold) (out []Candidate, at time.Time, err error) {
	var list []stats.PodStats
	if at = time.Now(); t.onDisk() {
		list, at, err = e.files.found.pods, e.files.found.at, e.files.found.err
	} else {
		list, err = e.c.Figures.Processes(ctx)
	}
	if err != nil {
		return nil, at, err
	}
	by := map[string]*stats.PodStats{}
	for i := range list {
		by[list[i].PodRef.UID] = &list[i]
	}
	for _, p := range e.c.Pods.Active() {
		out = append(out, Candidate{p, by[string(p.UID)]})
	}
	return out, at, nil
}

// attempt says that the node runs short of something.
func (e *Eviction) attempt(what v1.ResourceName) {
	e.c.Events.Node(v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(what))
}
