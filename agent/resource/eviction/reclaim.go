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

// files contains the state of the count of all pods' disk use. The count is made when little disk space is free. It
// may take minutes, so it runs outside of Run's goroutine. Run evaluates again when the count is done.
type files struct {
	pending    chan fileCount // nil if no count is running
	result     *fileCount     // set only for the first evaluation after the count
	recount    recountDelay
	background sync.WaitGroup
}

// A fileCount contains the disk use of the pods after unused containers and images were removed.
type fileCount struct {
	pods         []stats.PodStats
	at           time.Time // when the count started
	err          error
	by           string // cause of the evaluation that started the count
	anyCandidate bool   // some pod could be evicted
}

// longestLull is the maximum length of a recountDelay.
const longestLull = 5 * time.Minute

// A recountDelay is a pause after a count that found no pod to evict because other files fill the disk. During the pause
// nothing is reclaimed or counted, because a count reads all directories of all pods. The pause ends early if the disk
// use grows by so much that a pod could be the cause and be evicted for it.
type recountDelay struct {
	pause time.Duration
	until time.Time
	free  map[Signal]uint64 // free amounts at the start of the pause
}

// begin starts a pause that is twice as long as the last one.
func (l *recountDelay) begin(met []Threshold, o Observations, now time.Time) {
	l.pause = min(max(2*l.pause, 2*minInterval), longestLull)
	l.until, l.free = now.Add(l.pause), map[Signal]uint64{}
	for _, t := range met {
		l.free[t.Signal] = o[t.Signal].Free
	}
}

// isActive reports whether the pause is still active.
func (l *recountDelay) isActive(met []Threshold, o Observations, now time.Time) bool {
	return now.Before(l.until) && !slices.ContainsFunc(met, func(t Threshold) bool {
		before, known := l.free[t.Signal]
		return t.onDisk() && (!known || float64(before)-float64(o[t.Signal].Free) >= o.target(t)*fairPart)
	})
}

// onDisk reports whether the threshold's resource is on a disk.
func (t Threshold) onDisk() bool { return t.Signal.meaning().condition == v1.NodeDiskPressure }

// startReclaim starts to reclaim space for the disk thresholds in the list met, and then counts files. It does nothing if
// this is already in progress.
func (e *Eviction) startReclaim(ctx context.Context, met []Threshold, d Disks) {
	if e.files.pending != nil {
		return
	}
	var said []v1.ResourceName
	for _, t := range met {
		if what := t.Signal.meaning().resource; t.onDisk() && !slices.Contains(said, what) {
			said = append(said, what)
			e.announceReclaim(what)
		}
	}
	done, out := make(chan fileCount, 1), fileCount{at: time.Now(), by: e.cause}
	e.files.pending = done
	e.files.background.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				e.c.Log.Error("cannot count the files of pods", "panic", r, "stack", string(debug.Stack()))
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

// reclaim removes ended containers and unused images from the disks of the thresholds in the list met.
func (e *Eviction) reclaim(ctx context.Context, met []Threshold, d Disks) {
	if e.c.Reclaim == nil {
		return
	}
	var containers, images bool
	for _, t := range met {
		in, s := d.parts(t.Signal), t.Signal
		if t.onDisk() {
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
		e.c.Log.Warn("cannot reclaim all unused containers and images", "error", err)
	}
}
