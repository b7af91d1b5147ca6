package desired

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"
)

// An edit is a function that makes a change. It modifies copies of the rows and of the blocked pods.
type edit func(next rows, blocked map[string][]blockedPod) error

// A change is an edit that waits to be committed.
type change struct {
	edit edit
	done bool
	err  error
}

// applyEdit applies an edit, stores and publishes the changed rows, and calls Poke for their UIDs. If it returns an error, nothing has
// changed. A commit waits for the disk. Edits that arrive during a commit share the next commit.
func (d *Desired) applyEdit(ctx context.Context, e edit) error {
	c := &change{edit: e}
	d.waitingMu.Lock()
	d.waiting = append(d.waiting, c)
	d.waitingMu.Unlock()
	for _, uid := range d.commitWaiting(ctx, c) {
		d.Poke(uid)
	}
	return c.err
}

// commitWaiting commits all waiting changes. It does nothing if another goroutine has already committed the change c.
func (d *Desired) commitWaiting(ctx context.Context, c *change) (changed []types.UID) {
	d.changing.Lock()
	defer d.changing.Unlock()
	if c.done {
		return nil
	}
	d.waitingMu.Lock()
	group := d.waiting
	d.waiting = nil
	d.waitingMu.Unlock()
	if len(group) > 1 { // the contexts of other callers may end later than ctx
		ctx = context.WithoutCancel(ctx)
	}
	changed, err := d.commit(ctx, group)
	if err != nil && len(group) > 1 { // one bad edit must not make the others fail
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

// commit stores a group of changes in one transaction. If the edit of a change fails, commit sets the error of this change and omits it. If
// commit returns an error, nothing was stored. The caller must hold the mutex for changes.
func (d *Desired) commit(ctx context.Context, group []*change) ([]types.UID, error) {
	next, blocked := maps.Clone(d.rows), maps.Clone(d.blocked)
	for _, c := range group {
		if c.err != nil {
			continue
		}
		if c.err = c.edit(next, blocked); c.err != nil { // the edit may have changed some rows, so start over without it
			return d.commit(ctx, group)
		}
		blocked = next.retryBlocked(blocked)
	}
	put, remove := compareRows(d.rows, next)
	if len(put)+len(remove)+len(blocked)+len(d.blocked) == 0 { // only a field that is not stored has changed
		return nil, nil
	}
	if err := d.Store.UpdatePods(ctx, put, remove); err != nil {
		return nil, fmt.Errorf("store the wanted pods: %w", err)
	}
	return d.publish(next, blocked), nil
}
