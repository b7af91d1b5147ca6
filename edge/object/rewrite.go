package object

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/islet-edge/islet/edge/store"
)

// rewrite stores all known objects, because the store may have lost objects, or may have old copies. The stored objects get no versions, so
// the next start of the agent lists them again. That start also removes old copies of objects that no pod uses.
func (c *Cache) rewrite(ctx context.Context) error {
	c.mu.Lock()
	keys := slices.Collect(maps.Keys(c.items)) // objects that arrive later are stored in any case
	c.mu.Unlock()
	var err error
	for _, k := range keys {
		err = errors.Join(err, c.rewriteObject(ctx, k))
	}
	return err
}

// rewriteObject stores an object if it is known. It holds the lock storing only for one write, because a failing disk may take long for
// each write.
func (c *Cache) rewriteObject(ctx context.Context, key store.ObjectKey) error {
	c.storing.Lock()
	defer c.storing.Unlock()
	c.mu.Lock()
	it := c.items[key]
	if it == nil || !it.isKnown() {
		c.mu.Unlock()
		return nil
	}
	data, err := it.content.Marshal()
	o := store.Object{ObjectKey: key, Gone: it.gone, Data: data}
	c.mu.Unlock()
	if err != nil {
		return nil // it was encoded before, for the store
	}
	return c.cfg.Store.PutObject(ctx, o)
}
