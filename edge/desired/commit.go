package desired

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// An edit changes a copy of all that is known.
type edit func(next rows, claims map[string][]blocked) error

// A change is an edit on its way.
type change struct {
	edit edit
	done bool
	err  error
}

// change makes an edit, stores the difference, publishes it and pokes the UIDs
// that look different. An error means that nothing changed. Each difference waits for
// the disk, so whoever comes meanwhile shares the next wait: of a hundred pods that
// are forgotten at once few wait for one another.
func (d *Desired) change(ctx context.Context, e edit) error {
	c := &change{edit: e}
	d.asking.Lock()
	d.asked = append(d.asked, c)
	d.asking.Unlock()
	for _, uid := range d.lead(ctx, c) {
		d.Poke(uid)
	}
	return c.err
}

// lead makes all changes that are asked for, unless another one has made c already.
func (d *Desired) lead(ctx context.Context, c *change) (changed []types.UID) {
	d.changing.Lock()
	defer d.changing.Unlock()
	if c.done {
		return nil
	}
	d.asking.Lock()
	group := d.asked
	d.asked = nil
	d.asking.Unlock()
	if len(group) > 1 { // of which one may wait for longer than c's caller
		ctx = context.WithoutCancel(ctx)
	}
	changed, err := d.commit(ctx, group)
	if err != nil && len(group) > 1 { // one must not fail its neighbours
		for _, c := range group {
			if c.err == nil {
				of, err := d.commit(ctx, []*change{c})
				if err != nil {
					c.err = err
				}
				changed = append(changed, of...)
			}
		}
	} else if err != nil {
		c.err = err
	}
	for _, c := range group {
		c.done = true
	}
	return changed
}

// commit makes a group of changes one. Those whose edit fails have their error and are
// left out; its own error means that nothing could be stored. The caller holds changing.
func (d *Desired) commit(ctx context.Context, group []*change) ([]types.UID, error) {
	next, claims := maps.Clone(d.rows), maps.Clone(d.blocked)
	for _, c := range group {
		if c.err != nil {
			continue
		}
		if c.err = c.edit(next, claims); c.err != nil { // half of it is done
			return d.commit(ctx, group)
		}
		claims = next.retry(claims)
	}
	put, remove := difference(d.rows, next)
	if len(put)+len(remove)+len(claims)+len(d.blocked) == 0 { // most often what another part of a pod says
		return nil, nil
	}
	if err := d.Store.UpdatePods(ctx, put, remove); err != nil {
		return nil, fmt.Errorf("store the wanted pods: %w", err)
	}
	return d.publish(next, claims), nil
}
