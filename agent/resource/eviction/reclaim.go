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

// fileCounting contains the state of the count of all pods' disk use. The count is made when little disk space is free. It
// may take minutes, so it runs outside of Run's goroutine. Run evaluates again when the count is done.
type fileCounting struct {
	pendingCount chan fileCount // nil if no count is running
	result       *fileCount     // set only for the first evaluation after the count
	recount      recountDelay
	background   sync.WaitGroup
}

// A fileCount contains the disk use of the pods after unused containers and images were removed.
type fileCount struct {
	pods         []stats.PodStats
	at           time.Time // when the count started
	err          error
	cause        string // cause of the evaluation that started the count
	anyCandidate bool   // some pod could be evicted
}

// maxPause is the maximum length of a recountDelay.
const maxPause = 5 * time.Minute

// A recountDelay is a pause after a count that found no pod to evict because other files fill the disk. During the pause
// nothing is reclaimed or counted, because a count reads all directories of all pods. The pause ends early if the disk
// use has grown by a fair part of the missing amount, because a pod that caused this growth could be evicted.
type recountDelay struct {
	pauseLength time.Duration
	endTime     time.Time
	freeAtStart map[Signal]uint64 // free amounts at the start of the pause
}

// begin starts a pause that is twice as long as the last one.
func (l *recountDelay) begin(met []Threshold, o Observations, now time.Time) {
	l.pauseLength = min(max(2*l.pauseLength, 2*minInterval), maxPause)
	l.endTime, l.freeAtStart = now.Add(l.pauseLength), map[Signal]uint64{}
	for _, t := range met {
		l.freeAtStart[t.Signal] = o[t.Signal].Free
	}
}

// isActive reports whether the pause is still active.
func (l *recountDelay) isActive(met []Threshold, o Observations, now time.Time) bool {
	return now.Before(l.endTime) && !slices.ContainsFunc(met, func(t Threshold) bool {
		before, known := l.freeAtStart[t.Signal]
		return t.isOnDisk() && (!known || float64(before)-float64(o[t.Signal].Free) >= o.targetAmount(t)*fairPart)
	})
}

// isOnDisk reports whether the threshold's resource is on a disk.
func (t Threshold) isOnDisk() bool { return t.Signal.signalInfo().condition == v1.NodeDiskPressure }

// startReclaim starts to reclaim space for the disk thresholds in the list met, and then counts files. It does nothing if
// this is already in progress.
func (e *Eviction) startReclaim(ctx context.Context, met []Threshold, d Disks) {
	if e.fileCounting.pendingCount != nil {
		return
	}
	var said []v1.ResourceName
	for _, t := range met {
		if what := t.Signal.signalInfo().resource; t.isOnDisk() && !slices.Contains(said, what) {
			said = append(said, what)
			e.announceReclaim(what)
		}
	}
	done, out := make(chan fileCount, 1), fileCount{at: time.Now(), cause: e.cause}
	e.fileCounting.pendingCount = done
	e.fileCounting.background.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				e.c.Log.Error("cannot count the files of pods", "panic", r, "stack", string(debug.Stack()))
				out.err = fmt.Errorf("panic: %v", r)
			}
			done <- out
		}()
		e.reclaimSpace(ctx, met, d)
		out.at = time.Now()
		all, err := e.c.Figures.Summary(ctx, false)
		if out.err = err; err == nil {
			out.pods = all.Pods
		}
	})
}

// reclaimSpace removes ended containers and unused images from the disks of the thresholds in the list met.
func (e *Eviction) reclaimSpace(ctx context.Context, met []Threshold, d Disks) {
	if e.c.Reclaim == nil {
		return
	}
	var containers, images bool
	for _, t := range met {
		in, s := d.kindsOnDisk(t.Signal), t.Signal
		if t.isOnDisk() {
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
