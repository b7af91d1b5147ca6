package eviction

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/metrics/headroom"
)

// Run evaluates the thresholds until ctx ends.
func (e *Eviction) Run(ctx context.Context) error {
	if len(e.thresholds) == 0 && !e.enforcesLimits() {
		e.publishConditions(nil)
		e.c.Watch().Close() // removes the kernel's threshold that a previous agent has left
		<-ctx.Done()
		return nil
	}
	e.watch = e.c.Watch()
	defer e.watch.Close()
	defer e.podLimits.background.Wait()
	defer e.fileCounting.background.Wait()
	defer e.terminationLogs.background.Wait()
	next := time.NewTimer(0)
	defer next.Stop()
	var last, due time.Time
	var pause time.Duration
	// This channel triggers a second check of the memory some time after a kernel event, if enough memory was free at
	// the first check. It also triggers a check after the start. If the pods' cgroup does not exist at the first
	// evaluation, no threshold can be set for this cgroup.
	again := time.After(armDelay)
	for {
		woken := false
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
			if pause > 0 { // false if this evaluation continues the previous one
				e.cause = "timer"
			}
		case <-e.podChanged: // a pod with limits may have been added
			if e.enforcesLimits() && time.Until(due) > minInterval {
				due = time.Now().Add(minInterval)
				next.Reset(minInterval)
			}
			continue
		case found := <-e.podLimits.pendingResult:
			e.cause = "limits"
			e.evictExceeding(ctx, found)
			if len(found) == 0 {
				continue
			}
		case found := <-e.fileCounting.pendingCount:
			e.fileCounting.pendingCount, e.fileCounting.result, e.cause = nil, &found, found.cause
		case <-e.oomSignal:
			e.cause = "oom"
		case <-e.watch.Wake():
			if time.Now().Before(e.mutedUntil) {
				continue
			}
			woken, e.cause = true, "kernel"
		case <-again: // a process that allocates quickly may have exceeded the threshold before it was set
			again = nil
			if time.Now().Before(e.mutedUntil) || !e.memoryShort(ctx) {
				continue
			}
			e.cause = "kernel"
		}
		if woken {
			short := e.memoryShortAfter(ctx, last.Add(wakeGap)) // false when ctx has ended
			last = time.Now()
			if !short {
				again = time.After(wakeGap)
				continue
			}
		}
		pause = alignPause(e.evaluate(ctx))
		last = time.Now()
		due = last.Add(pause)
		next.Reset(pause)
	}
}

// alignPause aligns the longest pause with the timers of other parts, so that an idle node wakes up once for all. A shorter pause means
// that a resource may become scarce.
func alignPause(pause time.Duration) time.Duration {
	if pause == maxInterval {
		return clock.UntilMultiple(pause)
	}
	return pause
}

// memoryShortAfter waits until the given time, and then returns memoryShort. It returns false if ctx ends first.
func (e *Eviction) memoryShortAfter(ctx context.Context, at time.Time) bool {
	if wait := time.Until(at); wait > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
	return e.memoryShort(ctx)
}

// memoryShort reports whether any memory threshold is met. If none is met, it requests the next kernel event.
func (e *Eviction) memoryShort(ctx context.Context) bool {
	machine, pods, err := e.c.Reader.Memory(ctx)
	if err != nil {
		return true // evaluate reports the error
	}
	o := newObservations(headroom.Room{Memory: machine, Pods: pods})
	for _, t := range e.thresholds {
		if o.isBelow(t, false) {
			return true
		}
	}
	e.requestMemoryEvent(o)
	return false
}

// requestMemoryEvent requests a kernel event for the memory use at which the first threshold will be met.
func (e *Eviction) requestMemoryEvent(o Observations) {
	var more [2]uint64
	for _, t := range e.thresholds {
		i := slices.Index([]Signal{Memory, PodsMemory}, t.Signal)
		a, ok := o[t.Signal]
		if i < 0 || !ok {
			continue
		}
		if want := t.Value.units(a.Total); a.Free > want && (more[i] == 0 || a.Free-want < more[i]) {
			more[i] = a.Free - want
		}
	}
	e.watch.Arm(more[0], more[1])
}

// evaluate measures all resources, acts on the thresholds, and returns the time until the next evaluation.
func (e *Eviction) evaluate(ctx context.Context) time.Duration {
	r, err := e.c.Reader.Now(ctx)
	if err != nil && !e.roomFailing && ctx.Err() == nil {
		e.c.Log.Warn("cannot measure all eviction signals", "error", err)
	}
	e.roomFailing = err != nil
	now := time.Now()
	disks := disksOf(r)
	list, o := withContainerFs(e.thresholds, disks.Container), newObservations(r)
	e.state.markMet(v1.NodeMemoryPressure, e.lastOOMTime())
	v := e.state.Evaluate(list, o, e.transition, now)
	defer func() { e.fileCounting.result = nil }()
	if e.fileCounting.result != nil && !slices.ContainsFunc(v.Act, Threshold.isOnDisk) {
		e.c.Log.Info("disk space is available again without an eviction")
	}
	e.publishConditions(v.Conditions)
	e.requestMemoryEvent(o)
	e.truncateIfFuller(r)
	if !e.c.Hold {
		e.checkLimits(ctx, r, disks)
	}
	if len(v.Act) > 0 && !e.c.Hold && e.actOnThresholds(ctx, v.Act, o, disks) {
		e.fileCounting.recount = recountDelay{}
		return 0
	}
	switch f := e.fileCounting.result; {
	case !slices.ContainsFunc(v.Act, Threshold.isOnDisk):
		e.fileCounting.recount = recountDelay{}
	case f != nil && f.err == nil && !f.anyCandidate:
		e.fileCounting.recount.begin(v.Act, o, now)
	}
	if len(v.Act) == 0 {
		e.noCandidate, e.mutedUntil = false, time.Time{}
	}
	wait := min(nextLook(list, o, e.watch.Coverage()), e.podLimits.nextLook(), e.readmitPods(now))
	if !v.Wake.IsZero() {
		wait = min(wait, max(v.Wake.Sub(now), 0))
	}
	return wait
}

// disksOf reports whether the images and the containers are on the node's disk. If that is unknown, it returns true.
func disksOf(r headroom.Room) Disks {
	same := func(d headroom.Disk) bool { return d.Device == 0 || r.Node.Device == 0 || d.Device == r.Node.Device }
	return Disks{Image: same(r.Image), Container: same(r.Container)}
}

// publishConditions stores the conditions and reports a change. When a condition ends, rejected pods are evaluated
// again.
func (e *Eviction) publishConditions(now []v1.NodeConditionType) {
	e.mu.Lock()
	before, first := e.conditions, !e.hasMeasured
	e.conditions, e.hasMeasured = now, true
	e.mu.Unlock()
	if slices.Equal(before, now) && !first {
		return
	}
	if len(before)+len(now) > 0 {
		e.c.Log.Warn("the node's pressure conditions changed", "conditions", now, "before", before, "by", e.cause)
		e.c.Changed()
	}
	if len(now) < len(before) || first {
		e.c.Pods.NodeChanged()
	}
}

// readmitPods evaluates the static pods whose readmitDelay has passed, and returns the time until the next one is due.
func (e *Eviction) readmitPods(now time.Time) time.Duration {
	e.mu.Lock()
	wait, freed := maxInterval, false
	for uid, at := range e.evictedAt {
		left := at.Add(e.readmitDelay()).Sub(now)
		if left <= 0 {
			delete(e.evictedAt, uid)
			freed = true
			continue
		}
		wait = min(wait, left)
	}
	e.mu.Unlock()
	if freed {
		e.c.Pods.NodeChanged()
	}
	return wait
}
