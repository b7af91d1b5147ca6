package garbage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// View is the observed state of pods. *observe.Observer implements it.
type View interface {
	UIDs() []types.UID
	Pod(types.UID) plan.Observed
}

// Dead removes dead containers.
type Dead struct {
	View   View
	Remove func(ctx context.Context, uid types.UID, c plan.Container) error // removes its log too
	Sweep  func(ctx context.Context)                                        // removes remains of removed pods
}

// layers is an optional ability of a runtime: it deletes the writable layers of ended containers,
// and keeps their metadata.
type layers interface {
	DropLayers(ctx context.Context) error
}

// ReclaimContainers removes dead containers that a newer attempt has replaced and that are kept
// only for inspection. The last attempt stays, because its exit and number determine the next one,
// but its writable layer is deleted.
func (g *Garbage) ReclaimContainers(ctx context.Context) error {
	var errs []error
	for _, uid := range g.c.Dead.View.UIDs() {
		for _, c := range Followed(g.c.Dead.View.Pod(uid)) {
			if err := g.c.Dead.Remove(ctx, uid, c); err != nil {
				errs = append(errs, fmt.Errorf("remove dead container %s of pod %s: %w", c.Name, uid, err))
			}
		}
	}
	g.c.Dead.Sweep(ctx)
	if l, ok := g.c.Runtime.(layers); ok {
		errs = append(errs, l.DropLayers(ctx))
	}
	return errors.Join(errs...)
}

// Followed returns the ended containers for which a newer container of the same name runs.
func Followed(seen plan.Observed) (out []plan.Container) {
	for _, c := range seen.Containers {
		newest, _ := seen.Last(c.Name)
		if c.State == plan.Exited && newest.ID != c.ID && newest.State == plan.Running {
			out = append(out, c)
		}
	}
	return out
}

// Bounds limits the ended containers that are kept, by a kubelet's flags.
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-garbage-collection
type Bounds struct {
	MinAge       time.Duration // minimum-container-ttl-duration
	PerContainer int           // maximum-dead-containers-per-container; negative: no bound
	All          int           // maximum-dead-containers; negative: no bound
}

// Keep returns the bound for the plans of pods. A bound for all containers is divided evenly among
// the names with an ended container.
func (b Bounds) Keep(view View) func() plan.Dead {
	more := b.PerContainer - 1
	if b.PerContainer < 0 {
		more = math.MaxInt32
	}
	return func() plan.Dead {
		d := plan.Dead{More: more, MinAge: b.MinAge}
		if b.All < 0 {
			return d
		}
		units := 0
		for _, uid := range view.UIDs() {
			ended := map[string]bool{}
			for _, c := range view.Pod(uid).Containers {
				if c.State == plan.Exited {
					ended[c.Name] = true
				}
			}
			units += len(ended)
		}
		d.More = min(d.More, b.All/max(units, 1)-1)
		return d
	}
}
