package object

import (
	"bytes"
	"context"
	"errors"

	"github.com/islet-edge/islet/edge/store"
)

// rewrite stores the objects that the store has lost, and removes the old copies of objects that no pod uses. A restored object has no
// version, so the next start of the agent reads it again.
func (c *Cache) rewrite(ctx context.Context) error {
	c.storing.Lock()
	defer c.storing.Unlock()
	stored, err := c.cfg.Store.Objects(ctx)
	if err != nil {
		return err
	}
	lost, unused := c.compareStored(stored)
	errs := []error{c.cfg.Store.RemoveObjects(ctx, unused...)}
	for _, o := range lost {
		errs = append(errs, c.cfg.Store.PutObject(ctx, o))
	}
	return errors.Join(errs...)
}

// compareStored returns the known objects that are not stored, and the keys of the stored objects that no pod uses.
func (c *Cache) compareStored(stored []store.Object) (lost []store.Object, unused []store.ObjectKey) {
	has := map[store.ObjectKey]store.Object{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range stored {
		has[o.ObjectKey] = o
		if c.items[o.ObjectKey] == nil {
			unused = append(unused, o.ObjectKey)
		}
	}
	for k, it := range c.items {
		if !it.isKnown() {
			continue
		}
		data, err := it.content.Marshal() // it was encoded before, for the store
		if o, found := has[k]; err == nil && !(found && o.Gone == it.gone && bytes.Equal(o.Data, data)) {
			lost = append(lost, store.Object{ObjectKey: k, Gone: it.gone, Data: data})
		}
	}
	return lost, unused
}
