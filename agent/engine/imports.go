package engine

import (
	"maps"
	"slices"

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
