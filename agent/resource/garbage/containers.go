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

// View is what the runtime last said. *observe.Observer is one.
type View interface {
	UIDs() []types.UID
	Pod(types.UID) plan.Observed
}

// Dead is how dead containers go.
type Dead struct {
	View   View
	Remove func(ctx context.Context, uid types.UID, c plan.Container) error // with its log
	Sweep  func(ctx context.Context)                                        // removes what pods left that are gone
}

// layers is an optional ability of a runtime: it frees the writable layers of containers
// that have ended, and keeps what it knows of them.
type layers interface {
	DropLayers(ctx context.Context) error
}

// ReclaimContainers removes the dead containers that are kept only to be looked at: those
// after which another of the name runs. The last attempt at a container stays, whose end
// and number decide whether and when there is a next one; but its writable layer goes.
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

// Followed are the containers of a pod that have ended and after which a newer one of the
// same name runs.
func Followed(seen plan.Observed) (out []plan.Container) {
	for _, c := range seen.Containers {
		newest, _ := seen.Last(c.Name)
		if c.State == plan.Exited && newest.ID != c.ID && newest.State == plan.Running {
			out = append(out, c)
		}
	}
	return out
}

// Bounds is which ended containers are kept, by the flags of a kubelet.
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-garbage-collection
type Bounds struct {
	MinAge       time.Duration // minimum-container-ttl-duration
	PerContainer int           // maximum-dead-containers-per-container; negative: no bound
	All          int           // maximum-dead-containers; negative: no bound
}

// Keep is what the plans of pods are to keep. A bound for all is shared evenly among the
// containers that have an ended one.
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
