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

// files is the count of all pods' files, which is made when a disk is short. It may take minutes,
// so it runs beside the loop, which evaluates again when the count is done.
type files struct {
	pending    chan fileCount // nil: no count is running
	result     *fileCount     // for the evaluation that follows the count
	recount    recountDelay
	background sync.WaitGroup
}

// A fileCount is the pods' use of disks, after unused containers and images were removed.
type fileCount struct {
	pods         []stats.PodStats
	at           time.Time // start of the count
	err          error
	by           string // cause of the evaluation that started it
	anyCandidate bool   // a pod could be evicted because of it
}

// longestLull bounds a recountDelay.
const longestLull = 5 * time.Minute

// A recountDelay is the pause after a count that found no pod to evict: other files fill the disk.
// Meanwhile nothing is reclaimed or counted, because a count reads all directories of all pods. It
// ends early when the free space has shrunk by so much that a pod which took it would be evicted.
type recountDelay struct {
	pause time.Duration
	until time.Time
	free  map[Signal]uint64 // at its start
}

// begin starts a delay twice as long as the last one.
func (l *recountDelay) begin(met []Threshold, o Observations, now time.Time) {
	l.pause = min(max(2*l.pause, 2*soonest), longestLull)
	l.until, l.free = now.Add(l.pause), map[Signal]uint64{}
	for _, t := range met {
		l.free[t.Signal] = o[t.Signal].Free
	}
}

// holds reports whether the delay is active.
func (l *recountDelay) holds(met []Threshold, o Observations, now time.Time) bool {
	return now.Before(l.until) && !slices.ContainsFunc(met, func(t Threshold) bool {
		before, known := l.free[t.Signal]
		return t.onDisk() && (!known || float64(before)-float64(o[t.Signal].Free) >= o.target(t)*fairPart)
	})
}

// onDisk reports whether a threshold is about a disk.
func (t Threshold) onDisk() bool { return t.Signal.meaning().condition == v1.NodeDiskPressure }

// startReclaim starts to reclaim space for the disk thresholds in met and then to count files,
// unless that is running.
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

// reclaim removes ended containers and unused images from the disks of the thresholds.
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
