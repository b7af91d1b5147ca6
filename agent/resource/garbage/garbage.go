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

	"github.com/islet-edge/islet/runtime/cri"
)

// Period is how often Run looks, as a kubelet does.
const Period = 5 * time.Minute

// tellAgain is how soon an event is told again of a trouble that goes on: events live an hour.
const tellAgain = 50 * time.Minute

// Events takes those of the node. *outbox.Events is one.
type Events interface {
	Node(eventType, reason, message string)
}

// Config is what New needs.
type Config struct {
	Images  cri.Images // which may be a Reclaimer
	Runtime cri.Runtime
	Remote  bool                                    // the runtime is behind a socket
	Pods    func() []*v1.Pod                        // that are stored, with their statuses
	Disk    func(ctx context.Context) (Disk, error) // that images are on

	// High and Low are in percent of the disk: imageGCHighThresholdPercent and
	// imageGCLowThresholdPercent of the KubeletConfiguration. MinAge and MaxAge are its
	// imageMinimumGCAge and imageMaximumGCAge.
	High, Low      int
	MinAge, MaxAge time.Duration

	Offline func() bool  // images could not be had again now
	Wait    func() bool  // what is only for tidiness waits, to spare the disk. Nil: never
	Known   func() error // nil once it is known what runs
	Dead    Dead
	Meta    Meta
	Events  Events
	Now     func() time.Time
	Log     *slog.Logger
}

// Garbage collects.
type Garbage struct {
	c         Config
	collected *prometheus.CounterVec

	mu     sync.Mutex           // one collection at a time; guards the rest
	uses   *uses                // nil: not loaded yet
	failed int                  // collections in a row
	told   map[string]time.Time // when an event was last told of the trouble that there is, by reason
}

// New starts nothing.
func New(c Config) *Garbage {
	return &Garbage{c: c, collected: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_image_garbage_collected_total",
		Help: "images that were removed, by why: space or age"}, []string{"reason"})}
}

// Collectors count what was collected.
func (g *Garbage) Collectors() []prometheus.Collector { return []prometheus.Collector{g.collected} }

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
			g.result(g.collect(ctx))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// result tells of collections that fail again and again.
func (g *Garbage) result(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		g.failed, g.told = 0, nil
		return
	}
	g.failed++
	g.c.Log.Warn("images are not collected", "error", err)
	if g.failed > 1 {
		g.tell("ImageGCFailed", err.Error())
	}
}

// tell tells the first time, and then now and again. The caller holds mu.
func (g *Garbage) tell(reason, message string) {
	last, before := g.told[reason]
	if now := time.Now(); !before || now.Sub(last) >= tellAgain {
		g.c.Events.Node(v1.EventTypeWarning, reason, message)
		if g.told == nil {
			g.told = map[string]time.Time{}
		}
		g.told[reason] = now
	}
}

// Needed is who needs an image, by its ID; empty: nobody.
func (g *Garbage) Needed(ctx context.Context, id string) (string, error) {
	_, needs, err := g.look(ctx)
	if err != nil {
		return "", err
	}
	for _, n := range index(needs)[id] {
		return n.By, nil
	}
	return "", nil
}

// A wish is what is to be removed of what may go.
type wish struct {
	all            bool // whatever nothing needs
	minAge, maxAge time.Duration
	dry            bool
	enough         func() (bool, error) // asked after each image
}

// remove removes images, and gives them with those that stay. It looks anew after each, for
// a pod may have come meanwhile. The caller holds mu.
func (g *Garbage) remove(ctx context.Context, w wish) (done []Verdict, err error) {
	tried := map[string]bool{}
	var failed []error
	for {
		images, needs, err := g.look(ctx)
		if err != nil {
			return done, errors.Join(append(failed, err)...)
		}
		if err := g.note(ctx, images, needs); err != nil {
			return done, errors.Join(append(failed, err)...)
		}
		judged := Decide(Input{Images: images, Needs: needs, MinAge: w.minAge, MaxAge: w.maxAge, All: w.all, Offline: g.c.Offline(), Since: time.Unix(g.uses.Since, 0), Now: g.c.Now()})
		if w.dry {
			return judged, nil
		}
		next := -1
		for i, v := range judged {
			if v.Goes != "" && !tried[v.ID] {
				next = i
				break
			}
		}
		if next < 0 {
			for _, v := range judged {
				if v.Goes == "" {
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
		g.c.Log.Info("image removed", "image", v.ID, "tags", v.Tags, "why", v.Goes)
		g.collected.WithLabelValues(string(v.Goes)).Inc()
		done = append(done, v)
		if stop, err := w.enough(); stop || err != nil {
			return done, errors.Join(append(failed, err)...)
		}
	}
}

// note keeps what is known of the use of images, and sets it in them. The caller holds mu.
func (g *Garbage) note(ctx context.Context, images []Image, needs []Need) error {
	now := g.c.Now()
	if g.uses == nil {
		u, err := loadUses(ctx, g.c.Meta, now)
		if err != nil {
			return err
		}
		g.uses = u
	}
	if g.uses.note(images, needs, now) {
		if err := g.uses.store(ctx, g.c.Meta); err != nil { // such as that the disk is full, which is no reason to keep it so
			g.c.Log.Warn("when images were used is not stored", "error", err)
		}
	}
	g.uses.fill(images, now)
	return nil
}
