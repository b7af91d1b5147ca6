package eviction

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// files are those of all pods, which somebody counts once a disk is short. That may take
// minutes, and memory does not wait for it: the loop goes on, and looks again when they are
// counted.
type files struct {
	counting   chan counted // nil: nobody does
	found      *counted     // during the look that follows
	lull       lull
	background sync.WaitGroup
}

// A counted is what pods have on disks, once what no pod needs was removed.
type counted struct {
	pods []stats.PodStats
	at   time.Time // when it began
	err  error
	by   string // what made it look
	some bool   // a pod could be evicted by it
}

// longestLull bounds a lull.
const longestLull = 5 * time.Minute

// A lull is the time after a count by which no pod could be evicted. Others fill the disk
// then, and nothing is reclaimed or counted again: a count reads all directories of all pods.
// It ends sooner when a disk has lost so much more that a pod which took it would be evicted.
type lull struct {
	pause time.Duration
	until time.Time
	free  map[Signal]uint64 // when it began
}

// begin begins a lull that is twice as long as the last one.
func (l *lull) begin(met []Threshold, o Observations, now time.Time) {
	l.pause = min(max(2*l.pause, 2*soonest), longestLull)
	l.until, l.free = now.Add(l.pause), map[Signal]uint64{}
	for _, t := range met {
		l.free[t.Signal] = o[t.Signal].Free
	}
}

// holds reports whether there is no reason to count yet.
func (l *lull) holds(met []Threshold, o Observations, now time.Time) bool {
	return now.Before(l.until) && !slices.ContainsFunc(met, func(t Threshold) bool {
		before, known := l.free[t.Signal]
		return t.onDisk() && (!known || float64(before)-float64(o[t.Signal].Free) >= o.worth(t)*fairPart)
	})
}

// onDisk reports whether a threshold is on a disk.
func (t Threshold) onDisk() bool { return t.Signal.meaning().condition == v1.NodeDiskPressure }

// clear begins to remove what no pod needs from the disks of those thresholds that are on
// one, and then to count, unless it is at it.
func (e *Eviction) clear(ctx context.Context, met []Threshold, d Disks) {
	if e.files.counting != nil {
		return
	}
	var said []v1.ResourceName
	for _, t := range met {
		if what := t.Signal.meaning().resource; t.onDisk() && !slices.Contains(said, what) {
			said = append(said, what)
			e.attempt(what)
		}
	}
	done, out := make(chan counted, 1), counted{at: time.Now(), by: e.by}
	e.files.counting = done
	e.files.background.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				e.c.Log.Error("the files of pods are not counted", "panic", r, "stack", string(debug.Stack()))
				out.err = fmt.Errorf("panic: %v", r)
			}
			done <- out
		}()
		e.reclaim(ctx, met, d)
		out.at = time.Now()
		all, err := e.c.Figures.Summary(ctx, false)
		if out.err = err; err == nil {
			out.pods = all.Pods
		}
	})
}

// reclaim has removed what no pod needs on the disks of thresholds.
func (e *Eviction) reclaim(ctx context.Context, met []Threshold, d Disks) {
	if e.c.Reclaim == nil {
		return
	}
	var containers, images bool
	for _, t := range met {
		if in, s := d.parts(t.Signal), t.Signal; t.onDisk() {
			containers = containers || in.layers
			images = images || s == ImageFs || s == ImageInodes || in.logs && d.Image || !in.logs && !d.Image && !d.Container
		}
	}
	var errs []error
	if containers {
		errs = append(errs, e.c.Reclaim.ReclaimContainers(ctx))
	}
	if images {
		errs = append(errs, e.c.Reclaim.ReclaimImages(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		e.c.Log.Warn("not everything could be reclaimed that no pod needs", "error", err)
	}
}
