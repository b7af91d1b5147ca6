package engine

import (
	"context"
	"maps"
	"slices"
	"sync"

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

// FailedArchives lists the image archives whose last import failed, sorted by file name.
func (c *nativeBackend) FailedArchives() (out []api.Import) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, file := range slices.Sorted(maps.Keys(c.importErrors)) {
		out = append(out, api.Import{Ref: file, Status: "failed", Error: c.importErrors[file].Error()})
	}
	return out
}

// reportDamage records an event if the storage of images was damaged and replaced. It returns the records of imports for the inbox.
func (a Config) reportDamage(damage string) image.Imports {
	if damage == "" {
		return a.Store
	}
	a.RecordEvent(true, "ImageStorageDamaged", damage)
	return &lostImports{Imports: a.Store, again: map[string]bool{}}
}

// A lostImports has the records of imports after all images were lost. Until the next start of the agent, an archive counts as imported
// only if this process has imported it.
type lostImports struct {
	image.Imports

	mu    sync.Mutex
	again map[string]bool // the keys that this process has added
}

// WasImported implements image.Imports. The records of single images are not affected: they name the images that archives have.
func (l *lostImports) WasImported(ctx context.Context, key string) (bool, error) {
	l.mu.Lock()
	again := l.again[key]
	l.mu.Unlock()
	if !again && !image.IsImageKey(key) {
		return false, nil
	}
	return l.Imports.WasImported(ctx, key)
}

// AddImport implements image.Imports.
func (l *lostImports) AddImport(ctx context.Context, key, name string) error {
	if err := l.Imports.AddImport(ctx, key, name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again[key] = true
	return nil
}
