package object

import (
	"context"
	"errors"

	"github.com/islet-edge/islet/edge/store"
)

// rewrite stores all known objects, because the store may have lost objects, or may have old copies. The stored objects get no versions, so
// the next start of the agent lists them again. That start also removes old copies of objects that no pod uses.
func (c *Cache) rewrite(ctx context.Context) error {
	c.storing.Lock()
	defer c.storing.Unlock()
	var list []store.Object
	c.mu.Lock()
	for k, it := range c.items {
		if it.isKnown() {
			if data, err := it.content.Marshal(); err == nil { // it was encoded before, for the store
				list = append(list, store.Object{ObjectKey: k, Gone: it.gone, Data: data})
			}
		}
	}
	c.mu.Unlock()
	var err error
	for _, o := range list {
		err = errors.Join(err, c.cfg.Store.PutObject(ctx, o))
	}
	return err
}
