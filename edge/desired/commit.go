package desired

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// An edit modifies a copy of all rows and blocked claims.
type edit func(next rows, claims map[string][]blocked) error

// A change is an edit that waits for its commit.
type change struct {
	edit edit
	done bool
	err  error
}

// change applies an edit, stores the difference, publishes it and calls Poke for the changed
// UIDs. On an error nothing has changed. Each commit waits for the disk, so edits that arrive
// during a commit are committed together by the next one.
func (d *Desired) change(ctx context.Context, e edit) error {
	c := &change{edit: e}
	d.asking.Lock()
	d.asked = append(d.asked, c)
	d.asking.Unlock()
	for _, uid := range d.commitWaiting(ctx, c) {
		d.Poke(uid)
	}
	return c.err
}

// commitWaiting commits all waiting edits, unless another caller has committed c already.
func (d *Desired) commitWaiting(ctx context.Context, c *change) (changed []types.UID) {
	d.changing.Lock()
	defer d.changing.Unlock()
	if c.done {
		return nil
	}
	d.asking.Lock()
	group := d.asked
	d.asked = nil
	d.asking.Unlock()
	if len(group) > 1 { // another caller may wait longer than c's
		ctx = context.WithoutCancel(ctx)
	}
	changed, err := d.commit(ctx, group)
	if err != nil && len(group) > 1 { // a failing edit must not fail the others
		for _, c := range group {
			if c.err == nil {
				one, err := d.commit(ctx, []*change{c})
				if err != nil {
					c.err = err
				}
				changed = append(changed, one...)
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

// commit commits a group of changes together. Changes whose edit fails get their error and are
// left out. An error of commit means that nothing was stored. The caller holds changing.
func (d *Desired) commit(ctx context.Context, group []*change) ([]types.UID, error) {
	next, claims := maps.Clone(d.rows), maps.Clone(d.blocked)
	for _, c := range group {
		if c.err != nil {
			continue
		}
		if c.err = c.edit(next, claims); c.err != nil { // the edit may be half done: start over without it
			return d.commit(ctx, group)
		}
		claims = next.retry(claims)
	}
	put, remove := difference(d.rows, next)
	if len(put)+len(remove)+len(claims)+len(d.blocked) == 0 { // usually a change of a field that is not kept
		return nil, nil
	}
	if err := d.Store.UpdatePods(ctx, put, remove); err != nil {
		return nil, fmt.Errorf("store the wanted pods: %w", err)
	}
	return d.publish(next, claims), nil
}
