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
	"github.com/islet-edge/islet/metrics/headroom"
)

// actOnThresholds tries the thresholds in order until it has evicted a pod. It returns true after an eviction. The caller must then
// evaluate all thresholds again at once.
func (e *Eviction) actOnThresholds(ctx context.Context, met []Threshold, o Observations, d Disks) bool {
	for len(met) > 0 && ctx.Err() == nil {
		evicted, left := e.actOn(ctx, met, o, d)
		if evicted {
			e.noCandidate = false
			return true
		}
		met = left
	}
	return false
}

// actOn evicts a pod for the first threshold. If it evicts no pod, it returns the thresholds that are still met and have
// not been handled. For a memory threshold, it measures the memory again and updates the observations o.
func (e *Eviction) actOn(ctx context.Context, met []Threshold, o Observations, d Disks) (evicted bool, left []Threshold) {
	t := met[0]
	if t.isOnDisk() && e.fileCounting.result == nil {
		if !e.fileCounting.recount.isActive(met, o, time.Now()) {
			e.startReclaim(ctx, met, d)
		}
		return false, slices.DeleteFunc(slices.Clone(met), Threshold.isOnDisk)
	}
	what := t.Signal.signalInfo().resource
	others := func() []Threshold {
		return slices.DeleteFunc(slices.Clone(met), func(t Threshold) bool { return t.Signal.signalInfo().resource == what })
	}
	if !t.isOnDisk() {
		e.announceReclaim(what)
	}
	candidates, at, err := e.listCandidates(ctx, t)
	if err != nil {
		e.muteKernel(what)
		e.c.Log.Error("cannot rank pods for eviction", "signal", t.Signal, "error", err)
		return false, others()
	}
	if what == v1.ResourceMemory {
		// The measurement takes long under memory pressure, so the process that used the memory may have ended
		// meanwhile.
		if machine, pods, err := e.c.Reader.Memory(ctx); err == nil {
			maps.Copy(o, newObservations(headroom.Room{Memory: machine, Pods: pods}))
		}
		if left := o.stillMet(met); len(left) == 0 || left[0] != t {
			e.c.Log.Info("memory is available again without an eviction", "signal", t.Signal)
			e.requestMemoryEvent(o) // the previous kernel event has occurred
			return false, left
		}
	}
	for _, t := range met {
		e.c.Counter.Age(string(t.Signal), time.Since(at))
	}
	ranked := Rank(candidates, t.Signal, d, o.targetAmount(t))
	if t.isOnDisk() {
		e.fileCounting.result.anyCandidate = e.fileCounting.result.anyCandidate || len(ranked) > 0
	}
	for _, c := range ranked {
		message, annotations := Message(c, t, o)
		end := plan.End{Reason: plan.Evicted, Message: message, Grace: e.gracePeriod(c.Pod, t), Disrupted: true}
		if e.evict(ctx, c.Pod, end, string(t.Signal), annotations) {
			return true, nil
		}
	}
	e.muteKernel(what)
	if !e.noCandidate {
		e.noCandidate = true
		e.c.Log.Error("no pod can be evicted: each is critical, uses too little of the missing resource, or has ended", "signal", t.Signal)
		if t.isOnDisk() && o.isBelow(t, false) {
			e.c.Events.Node(v1.EventTypeWarning, foreignFiles, foreignMessage(candidates, t, o, d))
		}
	}
	return false, others()
}

// muteKernel ignores the kernel's memory events for a while, because no pod could be evicted. For other resources,
// which have no such events, it does nothing.
func (e *Eviction) muteKernel(what v1.ResourceName) {
	if what == v1.ResourceMemory {
		e.mutedUntil = time.Now().Add(minInterval)
	}
}

// gracePeriod returns the grace period that the pod gets for this eviction.
func (e *Eviction) gracePeriod(p *v1.Pod, t Threshold) time.Duration {
	if !t.Soft || t.Grace == 0 {
		return immediateGrace
	}
	most := int64(e.c.Kubelet.EvictionMaxPodGracePeriod)
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		most = min(most, *g)
	}
	return max(time.Duration(most)*time.Second, immediateGrace)
}

// immediateGrace is the grace period of an immediate eviction, as in a kubelet.
const immediateGrace = time.Second

// evict evicts a pod and waits until it has ended or evictTimeout has passed.
func (e *Eviction) evict(ctx context.Context, p *v1.Pod, end plan.End, why string, annotations map[string]string) bool {
	if !e.c.Pods.Evict(ctx, p.UID, end) {
		return false
	}
	if demand.IsOwn(p) {
		e.mu.Lock()
		e.evictedAt[p.UID] = time.Now()
		e.mu.Unlock()
	}
	e.c.Events.PodWith(annotations, p, v1.EventTypeWarning, plan.Evicted, end.Message)
	e.c.Counter.Evicted(why)
	e.c.Log.Warn("pod is evicted", "pod", p.Namespace+"/"+p.Name, "uid", p.UID, "signal", why, "by", e.cause, "message", end.Message)
	late := time.NewTimer(evictTimeout)
	defer late.Stop()
	for {
		if e.c.Pods.ResourcesReleased(p.UID) {
			return true
		}
		select {
		case <-e.podChanged:
		case <-late.C:
			e.c.Log.Warn("the evicted pod did not end in time", "pod", p.Namespace+"/"+p.Name, "uid", p.UID)
			return true
		case <-ctx.Done():
			return true
		}
	}
}

// listCandidates returns the active pods with the figures that are needed for the threshold, and the time of their
// measurement.
func (e *Eviction) listCandidates(ctx context.Context, t Threshold) (out []Candidate, at time.Time, err error) {
	var list []stats.PodStats
	at = time.Now()
	if t.isOnDisk() {
		list, at, err = e.fileCounting.result.pods, e.fileCounting.result.at, e.fileCounting.result.err
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

// announceReclaim records an event of the node that a resource is low.
func (e *Eviction) announceReclaim(what v1.ResourceName) {
	e.c.Events.Node(v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(what))
}
