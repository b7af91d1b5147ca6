package object

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/watch"
)

// errRewritten ends an attempt to read an item if the attempt began before a call of DropVersions.
var errRewritten = errors.New("the cluster has another history than before")

// DropVersions drops the resource versions of all objects, in memory and in the store. Call it after the API server was restored from a
// backup, because a watch from an old version would receive no events. All objects except immutable ones are listed again. Until then, pods
// use the known content.
func (c *Cache) DropVersions(ctx context.Context) error {
	c.mu.Lock()
	c.epoch++
	for _, it := range c.items {
		if it.watched != nil {
			it.watched.Stop()
		}
		it.requestRead()
	}
	c.mu.Unlock()
	return c.cfg.Store.VoidObjects(ctx)
}

func (c *Cache) currentEpoch() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

// recordWatch records the watch of an item, so that DropVersions can stop it. It returns false if DropVersions was called after the
// version of the watch was read.
func (c *Cache) recordWatch(it *item, w watch.Interface) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	it.watched = w
	return c.epoch == it.epoch
}
