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

// View returns the observed state of pods. *observe.Observer implements it.
type View interface {
	UIDs() []types.UID
	Pod(types.UID) plan.Observed
}

// DeadContainers removes dead containers.
type DeadContainers struct {
	View   View
	Remove func(ctx context.Context, uid types.UID, c plan.Container) error // removes the container and its log
	Sweep  func(ctx context.Context)                                        // removes the remains of removed pods
}

// layerRemover is implemented by runtimes that can delete the writable layer of an ended container but keep its metadata.
type layerRemover interface {
	DropLayers(ctx context.Context) error
}

// ReclaimContainers removes dead containers that were replaced by a newer attempt. They were only kept for
// inspection. It keeps the last attempt of each container, because the next attempt depends on its exit code and
// number. It only deletes the writable layer of that attempt.
func (g *Garbage) ReclaimContainers(ctx context.Context) error {
	var errs []error
	for _, uid := range g.c.Dead.View.UIDs() {
		for _, c := range FindReplaced(g.c.Dead.View.Pod(uid)) {
			if err := g.c.Dead.Remove(ctx, uid, c); err != nil {
				errs = append(errs, fmt.Errorf("remove dead container %s of pod %s: %w", c.Name, uid, err))
			}
		}
	}
	g.c.Dead.Sweep(ctx)
	if l, ok := g.c.Runtime.(layerRemover); ok {
		errs = append(errs, l.DropLayers(ctx))
	}
	return errors.Join(errs...)
}

// FindReplaced returns the ended containers of a pod for which a newer container with the same name runs.
func FindReplaced(seen plan.Observed) (out []plan.Container) {
	for _, c := range seen.Containers {
		newest, _ := seen.Newest(c.Name)
		if c.State == plan.Exited && newest.ID != c.ID && newest.State == plan.Running {
			out = append(out, c)
		}
	}
	return out
}

// Bounds limits the number of ended containers that are kept, like the flags of a kubelet.
//
// https://kubernetes.io/docs/concepts/architecture/garbage-collection/#container-garbage-collection
type Bounds struct {
	MinAge       time.Duration // minimum-container-ttl-duration
	PerContainer int           // maximum-dead-containers-per-container; negative means no bound
	Total        int           // maximum-dead-containers; negative means no bound
}

// ForPlans returns the bounds that apply to the plans of pods. It divides the bound for all containers evenly among
// the names of containers that have ended.
func (b Bounds) ForPlans(view View) func() plan.DeadLimit {
	more := b.PerContainer - 1
	if b.PerContainer < 0 {
		more = math.MaxInt32
	}
	return func() plan.DeadLimit {
		d := plan.DeadLimit{More: more, MinAge: b.MinAge}
		if b.Total < 0 {
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
		d.More = min(d.More, b.Total/max(units, 1)-1)
		return d
	}
}
