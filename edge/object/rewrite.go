package object

import (
	"bytes"
	"context"
	"errors"

	"github.com/islet-edge/islet/edge/store"
)

// rewrite stores the objects that the store has lost. A restored object has no version, so the next start of the agent reads it again. That
// start also removes old copies of objects that no pod uses.
func (c *Cache) rewrite(ctx context.Context) error {
	c.storing.Lock()
	defer c.storing.Unlock()
	stored, err := c.cfg.Store.Objects(ctx)
	if err != nil {
		return err
	}
	for _, o := range c.findLost(stored) {
		err = errors.Join(err, c.cfg.Store.PutObject(ctx, o))
	}
	return err
}

// findLost returns the known objects that are not stored.
func (c *Cache) findLost(stored []store.Object) (lost []store.Object) {
	has := map[store.ObjectKey]*store.Object{}
	for i := range stored {
		has[stored[i].ObjectKey] = &stored[i]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, it := range c.items {
		if !it.isKnown() {
			continue
		}
		data, err := it.content.Marshal() // it was encoded before, for the store
		if o := has[k]; err == nil && (o == nil || o.Gone != it.gone || !bytes.Equal(o.Data, data)) {
			lost = append(lost, store.Object{ObjectKey: k, Gone: it.gone, Data: data})
		}
	}
	return lost
}
