package image

import (
	"context"
	"fmt"
	"time"
)

// ImagesAdded returns the time at which each image was stored under its oldest name. The keys are image IDs. The times
// are the times in containerd's records, so nothing is kept in memory.
func (s *Service) ImagesAdded(ctx context.Context) (map[string]time.Time, error) {
	ctx = withNamespace(ctx)
	list, err := s.c.Client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	if err := s.loadIndex(ctx); err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, img := range list {
		r, known := s.index.names[img.Name]
		if !known {
			continue
		}
		id := r.id.String()
		if at, known := out[id]; !known || img.UpdatedAt.Before(at) { // UpdatedAt is the time at which the name was given to the image
			out[id] = img.UpdatedAt
		}
	}
	return out, nil
}
