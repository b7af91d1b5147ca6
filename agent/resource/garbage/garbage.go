package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/event"
	"github.com/islet-edge/islet/metrics/host"
	"github.com/islet-edge/islet/runtime/cri"
)

// Period is the interval of Run, as in a kubelet.
const Period = 5 * time.Minute

// repeatEvent is the interval at which the event is repeated while a problem lasts. Events expire after an hour.
const repeatEvent = 50 * time.Minute

// Config configures New.
type Config struct {
	Images  cri.Images // may implement Reclaimer
	Runtime cri.Runtime
	Remote  bool                                    // set if the runtime is a remote runtime
	Pods    func() []*v1.Pod                        // the stored pods with their statuses
	Disk    func(ctx context.Context) (Disk, error) // measures the disk that contains the images

	// High and Low are percentages of the disk. They correspond to imageGCHighThresholdPercent and
	// imageGCLowThresholdPercent of the KubeletConfiguration. MinAge and MaxAge correspond to its imageMinimumGCAge
	// and imageMaximumGCAge.
	High, Low      int
	MinAge, MaxAge time.Duration

	Offline        func() bool  // reports whether a removed image could not be pulled again now
	SaveWrites     func() bool  // reports whether images are not removed by age now, to reduce writes to the disk; may be nil
	CheckPodsKnown func() error // returns nil when the running containers are known; may be nil
	Dead           DeadContainers
	Meta           Meta
	Events         event.Sink
	Now            func() time.Time
	ClockSynced    func() bool // reports whether the clock is synchronized; nil means that the kernel is asked
	Log            *slog.Logger
}

// Garbage collects images and dead containers.
type Garbage struct {
	c             Config
	removedImages *prometheus.CounterVec

	mu         sync.Mutex           // locked during a collection; guards the fields below
	uses       *storedUses          // nil until it is loaded
	failures   int                  // number of consecutive failed collections
	reportedAt map[string]time.Time // when the event of each lasting problem was last recorded, by reason
}

// New returns a Garbage. It starts no goroutine.
func New(c Config) *Garbage {
	if c.ClockSynced == nil {
		c.ClockSynced = host.IsClockSynced
	}
	return &Garbage{c: c, removedImages: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_image_garbage_collected_total",
		Help: "images that were removed, by reason: space or age"}, []string{"reason"})}
}

// Collectors returns the metrics of removed images.
func (g *Garbage) Collectors() []prometheus.Collector { return []prometheus.Collector{g.removedImages} }

// Run collects images until ctx ends.
func (g *Garbage) Run(ctx context.Context) error {
	if g.c.High >= 100 && g.c.MaxAge == 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(Period)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.recordResult(g.collectImages(ctx))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// recordResult records whether a collection has failed. It records an event from the second consecutive failure on.
func (g *Garbage) recordResult(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.failures, g.reportedAt = 0, nil
		return
	}
	g.failures++
	g.c.Log.Warn("cannot collect images", "error", err)
	if g.failures > 1 {
		g.recordEvent("ImageGCFailed", err.Error())
	}
}

// recordEvent records an event. While the problem lasts, it records the event at most once per repeatEvent. The caller
// holds mu.
func (g *Garbage) recordEvent(reason, message string) {
	last, before := g.reportedAt[reason]
	if now := time.Now(); !before || now.Sub(last) >= repeatEvent {
		g.c.Events.Node(v1.EventTypeWarning, reason, message)
		if g.reportedAt == nil {
			g.reportedAt = map[string]time.Time{}
		}
		g.reportedAt[reason] = now
	}
}

// A removal describes which unused images to remove.
type removal struct {
	allUnused      bool // remove all unused images, not only the old ones
	minAge, maxAge time.Duration
	dry            bool
	isEnough       func() (bool, error) // called after each image is removed; the removal ends when it returns true
}

// remove removes unused images. It returns the removed images. If the removal was not ended early, it also returns
// the remaining images. After each image it inspects the node again, because a pod may have been added. The caller
// holds mu.
func (g *Garbage) remove(ctx context.Context, w removal) (done []Verdict, err error) {
	tried := map[string]bool{}
	var failed []error
	for {
		images, needs, err := g.inspect(ctx)
		if err != nil {
			return done, errors.Join(append(failed, err)...)
		}
		if err := g.recordUses(ctx, images, needs); err != nil {
			return done, errors.Join(append(failed, err)...)
		}
		judged := Decide(Input{
			Images: images, Needs: needs, MinAge: w.minAge, MaxAge: w.maxAge, All: w.allUnused,
			Offline: g.c.Offline(), Since: time.Unix(g.uses.Since, 0), Now: g.c.Now(),
		})
		if w.dry {
			return judged, nil
		}
		next := -1
		for i, v := range judged {
			if v.RemoveCause != "" && !tried[v.ID] {
				next = i
				break
			}
		}
		if next < 0 {
			for _, v := range judged {
				if v.RemoveCause == "" {
					done = append(done, v)
				}
			}
			return done, errors.Join(failed...)
		}
		v := judged[next]
		tried[v.ID] = true
		if _, err := g.c.Images.RemoveImage(ctx, &api.RemoveImageRequest{Image: &api.ImageSpec{Image: v.ID}}); err != nil {
			if ctx.Err() != nil {
				return done, err
			}
			failed = append(failed, fmt.Errorf("remove image %s: %w", v.ID, err))
			continue
		}
		g.c.Log.Info("image removed", "image", v.ID, "tags", v.Tags, "why", v.RemoveCause)
		g.removedImages.WithLabelValues(string(v.RemoveCause)).Inc()
		done = append(done, v)
		if stop, err := w.isEnough(); stop || err != nil {
			return done, errors.Join(append(failed, err)...)
		}
	}
}

// recordUses updates the stored uses, and sets First and Used of the images. The caller holds mu.
func (g *Garbage) recordUses(ctx context.Context, images []Image, needs []Need) error {
	now := g.c.Now()
	if g.uses == nil {
		u, err := loadUses(ctx, g.c.Meta, now)
		if err != nil {
			return err
		}
		g.uses = u
	}
	if g.uses.update(images, needs, now, g.c.ClockSynced()) {
		if err := g.uses.store(ctx, g.c.Meta); err != nil { // images must be removed even if the disk is full
			g.c.Log.Warn("cannot store the times of use of images", "error", err)
		}
	}
	g.uses.setTimes(images, now)
	return nil
}
