package garbage

import (
	"context"
	"errors"
	"fmt"

	agentapi "github.com/islet-edge/islet/internal/api"
)

// Reclaimer is an optional ability of Images: it frees what belongs to no image, such as
// downloads that stopped, and layers and content that nothing refers to. It has to write a
// little for that, which a disk that is full to the last byte does not let it.
type Reclaimer interface {
	Reclaim(ctx context.Context) error
}

// rest frees what belongs to no image, where the runtime can.
func (g *Garbage) rest(ctx context.Context) error {
	r, ok := g.c.Images.(Reclaimer)
	if !ok {
		return nil
	}
	if err := r.Reclaim(ctx); err != nil {
		return fmt.Errorf("free what belongs to no image: %w", err)
	}
	return nil
}

// clear frees what belongs to no image, and removes images until there is enough. If the
// former fails, images go all the same, and it is tried again with the room that they
// leave. The caller holds mu.
func (g *Garbage) clear(ctx context.Context, w wish) error {
	failed := g.rest(ctx)
	if done, err := w.enough(); done || err != nil {
		return errors.Join(failed, err)
	}
	_, err := g.remove(ctx, w)
	if failed != nil {
		failed = g.rest(ctx)
		_, unknown := w.enough() // which measures
		failed = errors.Join(failed, unknown)
	}
	return errors.Join(failed, err)
}

// ReclaimImages frees the space of every image that nothing needs and that did not come
// just now, for an eviction that can be spared by it.
// https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#reclaim-node-resources
func (g *Garbage) ReclaimImages(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.clear(ctx, wish{all: true, minAge: g.c.MinAge, enough: never})
}

// never is the wish for all that there is.
func never() (bool, error) { return false, nil }

// Prune is the same for a person, whatever the age of images; dry only says what would be
// done. It also says what stays and why, and on an error what is done already.
func (g *Garbage) Prune(ctx context.Context, dry bool) agentapi.Pruned {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := agentapi.Pruned{Removed: []agentapi.Image{}, Kept: []agentapi.Kept{}}
	judged, err := g.remove(ctx, wish{all: true, dry: dry, enough: never})
	for _, v := range judged {
		i := agentapi.Image{ID: v.ID, Tags: v.Tags, Digests: v.Digests, Size: v.Size, Pinned: v.Pinned}
		if v.Goes != "" {
			out.Removed = append(out.Removed, i)
		} else {
			out.Kept = append(out.Kept, agentapi.Kept{Image: i, Why: v.Stays})
		}
	}
	if _, out.Rest = g.c.Images.(Reclaimer); out.Rest && !dry {
		var more error
		out.Freed, more = g.measured(ctx, g.rest)
		err = errors.Join(err, more)
	}
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// measured does something that makes room, and says how many bytes more are free then. What
// others write meanwhile is not told apart.
func (g *Garbage) measured(ctx context.Context, do func(context.Context) error) (uint64, error) {
	before, unknown := g.c.Disk(ctx)
	if err := errors.Join(do(ctx), unknown); err != nil {
		return 0, err
	}
	after, err := g.c.Disk(ctx)
	return max(after.Free, before.Free) - before.Free, err
}
