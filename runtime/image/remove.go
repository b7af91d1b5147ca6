package image

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RemoveImage deletes every name of an image, also of an image that cannot be used because a part of it is damaged. It frees the disk space
// before it returns, unless ctx ends first or that takes longer than cleanupTimeout. It returns no error if the image does not exist, and
// errdefs.ErrFailedPrecondition if the image is pinned (PinImages). The caller must check whether containers use the image. A snapshot that
// a container uses remains until the container is removed.
func (s *Service) RemoveImage(ctx context.Context, req *api.RemoveImageRequest) (*api.RemoveImageResponse, error) {
	ref := req.GetImage().GetImage()
	deleted, err := s.removeNames(withNamespace(ctx), ref)
	missing := errors.Is(err, errdefs.ErrNotFound)
	if deleted || missing {
		s.usage.invalidate()
		if s.c.OnRemove != nil {
			s.c.OnRemove()
		}
	}
	if err != nil && !missing {
		return nil, err
	}
	return &api.RemoveImageResponse{}, nil
}

// Untag removes one name from an image. If it was the last name, the image is removed, as by
// RemoveImage.
func (s *Service) Untag(ctx context.Context, name string) error {
	ctx = withNamespace(ctx)
	ref, err := normalizeName(name)
	if err != nil {
		return err
	}
	e, err := s.findImage(ctx, name)
	if errors.Is(err, errdefs.ErrNotFound) && len(s.removableNames(name)) > 0 {
		_, err := s.RemoveImage(ctx, &api.RemoveImageRequest{Image: &api.ImageSpec{Image: name}})
		return err
	}
	if err != nil {
		return err
	}
	s.index.mu.Lock()
	others := slices.DeleteFunc(s.index.namesOf(e.id), func(n string) bool {
		return n == ref.String() || strings.Contains(n, "@") && !s.index.pins[n]
	})
	_, recorded := s.index.names[ref.String()]
	if !recorded || len(others) == 0 || s.index.pins[ref.String()] {
		s.index.mu.Unlock()
		_, err := s.RemoveImage(ctx, &api.RemoveImageRequest{Image: &api.ImageSpec{Image: name}})
		return err
	}
	defer s.index.mu.Unlock()
	if err := s.c.Client.ImageService().Delete(ctx, ref.String()); err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("untag image %s: %w", name, err)
	}
	delete(s.index.names, ref.String())
	s.index.dropUnnamed()
	return nil
}

// removeNames deletes every name of an image and runs the garbage collector. It does not hold the index meanwhile, because the removal of
// the files may take long. An error of the garbage collector is not returned: the image is removed.
func (s *Service) removeNames(ctx context.Context, ref string) (deleted bool, err error) {
	e, err := s.findImage(ctx, ref)
	switch {
	case err == nil:
		deleted, err = s.deleteNames(ctx, ref, e)
	case errors.Is(err, errdefs.ErrNotFound):
		if names := s.removableNames(ref); len(names) > 0 {
			deleted, err = s.deleteIncomplete(ctx, names)
		}
	}
	if !deleted {
		return false, err
	}
	if err := s.collectGarbage(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn(notCollected, "error", err)
	}
	return true, err
}

// deleteNames deletes every name of an image, unless the image is pinned. It reports whether it has deleted any.
func (s *Service) deleteNames(ctx context.Context, ref string, e *entry) (deleted bool, err error) {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	names := s.index.namesOf(e.id)
	if s.index.isPinned(names) {
		return false, errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("image %s is pinned: it belongs to the bundle in use, on "+
			"trial or before (islet bundle status): apply bundles without this image, and remove it then", ref))
	}
	var errs []error
	for _, name := range names {
		err := s.c.Client.ImageService().Delete(ctx, name)
		if err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove image %s: %w", name, err))
			continue
		}
		delete(s.index.names, name)
		deleted = true
	}
	s.index.dropUnnamed()
	return deleted, errors.Join(errs...)
}

// incompleteNames returns the names of the images to which ref refers, and which could not be used when they were last read. ref is a name
// or a digest. The caller holds mu.
func (x *imageIndex) incompleteNames(ref string) (names []string) {
	if len(x.incomplete) == 0 {
		return nil
	}
	id, _ := digest.Parse(ref)
	if named, err := normalizeName(ref); err == nil {
		ref = named.String()
	}
	for name, target := range x.incomplete {
		if name == ref || target.Digest == id {
			names = append(names, name)
		}
	}
	return names
}

// removableNames returns the incompleteNames that are not pinned.
func (s *Service) removableNames(ref string) []string {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	return slices.DeleteFunc(s.index.incompleteNames(ref), func(name string) bool { return s.index.pins[name] })
}

// deleteIncomplete deletes the names of images that cannot be used. It reads each image again before, and keeps an image that is intact by
// now. It reports whether it has deleted any.
func (s *Service) deleteIncomplete(ctx context.Context, names []string) (deleted bool, err error) {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	if err := s.retryIncomplete(ctx, names); err != nil {
		return false, err
	}
	var errs []error
	for _, name := range names {
		if _, incomplete := s.index.incomplete[name]; !incomplete {
			continue // it was pulled or imported meanwhile, or is intact
		}
		if err := s.c.Client.ImageService().Delete(ctx, name); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove image %s: %w", name, err))
			continue
		}
		delete(s.index.incomplete, name)
		deleted = true
	}
	return deleted, errors.Join(errs...)
}

// deleteAllIncomplete deletes the names of all images that cannot be used, except pinned ones.
func (s *Service) deleteAllIncomplete(ctx context.Context) error {
	s.index.mu.Lock()
	err := s.loadIndex(ctx)
	names := slices.DeleteFunc(slices.Collect(maps.Keys(s.index.incomplete)), func(name string) bool { return s.index.pins[name] })
	s.index.mu.Unlock()
	if err == nil {
		_, err = s.deleteIncomplete(ctx, names)
	}
	return err
}
