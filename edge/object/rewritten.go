package object

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/watch"
)

// errRewritten ends a round that began before the history was found to be another one.
var errRewritten = errors.New("the cluster has another history than before")

// Void drops all versions, in the store too: the API server does not have the history
// that they are of, and a watch from one of them would hear nothing. All objects are
// listed anew, but for immutable ones; what was known is used until then.
func (c *Cache) Void(ctx context.Context) error {
	c.mu.Lock()
	c.epoch++
	for _, it := range c.items {
		if it.watched != nil {
			it.watched.Stop()
		}
		it.ask()
	}
	c.mu.Unlock()
	return c.cfg.Store.VoidObjects(ctx)
}

func (c *Cache) current() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// watching notes the watch of an item, so that Void can end it. It is false if that was
// called since the version is known from which the watch began.
func (c *Cache) watching(it *item, w watch.Interface) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	it.watched = w
	return c.epoch == it.epoch
}
