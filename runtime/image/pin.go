package image

import "slices"

// PinImages replaces the set of pinned images, which are given by their names. The CRI lists a pinned image as pinned, so garbage
// collection and prune keep it. RemoveImage and Untag return an error for it.
func (s *Service) PinImages(names []string) {
	pins := make(map[string]bool, len(names))
	for _, n := range names {
		pins[n] = true
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.index.pins = pins
}

// isPinned reports whether one of the names of an image is pinned. The caller holds x.mu.
func (x *imageIndex) isPinned(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return x.pins[n] })
}
