package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/registry"
)

// A blobFetcher reads indexes, manifests and configs from the content store or, if they are missing
// or damaged there, from the registry.
type blobFetcher struct {
	store   content.Provider
	fetcher remotes.Fetcher
	stall   time.Duration
}

func (r *blobFetcher) read(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	b, err := readStored(ctx, r.store, desc)
	if err == nil || ctx.Err() != nil {
		return b, err
	}
	return r.fetch(ctx, desc)
}

// fetch reads a blob from the registry. It returns an error if the length differs from the size in
// the descriptor.
func (r *blobFetcher) fetch(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
	if desc.Size <= 0 || desc.Size > maxManifest {
		return nil, fmt.Errorf("its descriptor has the size %d: %w", desc.Size, errdefs.ErrInvalidArgument)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.stall, errStalled)
	defer cancel()
	body, err := r.fetcher.Fetch(registry.WithReaderLimit(ctx), desc)
	if err != nil {
		return nil, networkError{err}
	}
	defer body.Close()
	b := make([]byte, desc.Size)
	if _, err := io.ReadFull(body, b); err != nil {
		return nil, networkError{err}
	}
	if n, err := io.ReadFull(body, make([]byte, 1)); n > 0 || err != io.EOF {
		return nil, fmt.Errorf("the registry sent more than the %d bytes of its descriptor: %w",
			desc.Size, errors.Join(errdefs.ErrDataLoss, err))
	}
	if got := desc.Digest.Algorithm().FromBytes(b); got != desc.Digest {
		return nil, errors.Join(fmt.Errorf("the registry sent the digest %s instead", got), errdefs.ErrDataLoss)
	}
	return b, nil
}
