package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/runtime/image"
)

// ImportsInProgress returns the pulls and imports in progress.
func (c *nativeBackend) ImportsInProgress() (out []api.Import) {
	for _, p := range c.service.ImportsInProgress() {
		out = append(out, api.Import{Ref: p.Ref, Status: p.Status, Current: p.Current, Total: p.Total})
	}
	return out
}

// BundleImages returns the image store of the runtime in this process. It returns nil for a remote runtime.
func (c *Containers) BundleImages() *image.Service {
	if b, ok := c.backend.(*nativeBackend); ok {
		return b.service
	}
	return nil
}

// HasIncompleteImages reports whether the runtime in this process has images that cannot be used now, and may be usable later.
func (c *Containers) HasIncompleteImages(ctx context.Context) (bool, error) {
	if images := c.BundleImages(); images != nil {
		return images.HasIncomplete(ctx)
	}
	return false, nil
}

// FailedArchives lists the image archives whose last import failed, sorted by file name.
func (c *nativeBackend) FailedArchives() (out []api.Import) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range slices.Sorted(maps.Keys(c.importErrors)) {
		out = append(out, api.Import{Ref: file, Status: "failed", Error: c.importErrors[file].Error()})
	}
	return out
}

const (
	// damageKept is how long a damage of the storage is remembered at least after it was reported. Events are stored a minute later.
	damageKept = 2 * time.Minute
	// forgetInterval is the interval at which the deletion of the records of imports is tried again. It fails on a full disk.
	forgetInterval = time.Minute
)

// A damagedStorage is a storage of images that may have been replaced by an empty one. *daemon.Daemon implements it.
type damagedStorage interface {
	Damage() string
	ForgetDamage() error
}

// reportDamage records an event if the storage of images was damaged and replaced, and deletes the records of imports of archives, so that
// archives are imported again. It keeps the records of single images: they name the images that archives have. The result tries
// again until the records are deleted, and calls reread then. It waits until the event is stored, and then forgets the damage. If the agent
// ends before, its next start calls reportDamage again.
func (a Config) reportDamage(ctx context.Context, s damagedStorage) (forget func(ctx context.Context, reread func())) {
	if s.Damage() == "" {
		return func(context.Context, func()) {}
	}
	a.RecordEvent(true, "ImageStorageDamaged", s.Damage())
	err := a.Store.ForgetArchives(ctx, image.ImageKeyPrefix)
	if err != nil {
		a.Log.Warn("image archives are not imported again yet: their records cannot be deleted", "error", err)
	}
	return func(ctx context.Context, reread func()) {
		for err != nil && pause(ctx, forgetInterval) {
			if err = a.Store.ForgetArchives(ctx, image.ImageKeyPrefix); err == nil {
				reread()
			}
		}
		if !pause(ctx, damageKept) {
			return
		}
		if err := s.ForgetDamage(); err != nil {
			a.Log.Warn("the damage of the storage of images will be reported again at the next start of the agent", "error", err)
		}
	}
}

// pause waits. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
