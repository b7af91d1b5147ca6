package garbage

import (
	"context"
	"errors"
	"fmt"

	agentapi "github.com/islet-edge/islet/internal/api"
)

// Reclaimer is implemented by Images that can free disk space that belongs to no image, such as interrupted downloads and
// unreferenced layers. A call of Reclaim itself needs some free space.
type Reclaimer interface {
	Reclaim(ctx context.Context) error
}

// reclaimRest frees space that belongs to no image, if the runtime supports it.
func (g *Garbage) reclaimRest(ctx context.Context) error {
	r, ok := g.c.Images.(Reclaimer)
	if !ok {
		return nil
	}
	if err := r.Reclaim(ctx); err != nil {
		return fmt.Errorf("free space that belongs to no image: %w", err)
	}
	return nil
}

// freeSpace frees space that belongs to no image, and then removes images until w.isEnough returns true. If the first step
// fails, it is repeated after images were removed. The caller holds mu.
func (g *Garbage) freeSpace(ctx context.Context, w removal) error {
	failed := g.reclaimRest(ctx)
	if done, err := w.isEnough(); done || err != nil {
		return errors.Join(failed, err)
	}
	_, err := g.remove(ctx, w)
	if failed != nil {
		failed = g.reclaimRest(ctx)
		_, unknown := w.isEnough() // measures again
		failed = errors.Join(failed, unknown)
	}
	return errors.Join(failed, err)
}

// ReclaimImages removes all unused images, except new ones, to avoid the eviction of a pod.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#reclaim-node-resources
func (g *Garbage) ReclaimImages(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.freeSpace(ctx, removal{allUnused: true, minAge: g.c.MinAge, isEnough: notEnough})
}

// notEnough makes a removal continue until no unused image is left.
func notEnough() (bool, error) { return false, nil }

// Prune removes all unused images of any age, on behalf of a user. If dry is true, it only returns which images it
// would remove. The result also contains the images that are kept, with the reasons. If Prune returns an error, the
// result lists the images that were removed before the error.
func (g *Garbage) Prune(ctx context.Context, dry bool) agentapi.Pruned {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := agentapi.Pruned{Removed: []agentapi.Image{}, Kept: []agentapi.Kept{}}
	judged, err := g.remove(ctx, removal{allUnused: true, dry: dry, isEnough: notEnough})
	for _, v := range judged {
		i := agentapi.Image{ID: v.ID, Tags: v.Tags, Digests: v.Digests, Size: v.Size, Pinned: v.Pinned}
		if v.RemoveCause != "" {
			out.Removed = append(out.Removed, i)
		} else {
			out.Kept = append(out.Kept, agentapi.Kept{Image: i, Why: v.KeepReason})
		}
	}
	if _, out.Rest = g.c.Images.(Reclaimer); out.Rest && !dry {
		var more error
		out.Freed, more = g.measureFreed(ctx, g.reclaimRest)
		err = errors.Join(err, more)
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// measureFreed calls the given function and returns how many bytes this call freed on the disk. Other writes during
// the call distort the result.
func (g *Garbage) measureFreed(ctx context.Context, do func(context.Context) error) (uint64, error) {
	before, unknown := g.c.Disk(ctx)
	if err := errors.Join(do(ctx), unknown); err != nil {
		return 0, err
	}
	after, err := g.c.Disk(ctx)
	return max(after.Free, before.Free) - before.Free, err
}
