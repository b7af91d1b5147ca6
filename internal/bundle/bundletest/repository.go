package bundletest

import (
	"context"
	"errors"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/registry"
)

// A Repository is a bundle in a registry, as a node reads it, without the node's settings of pulls. It implements feed.Repository.
type Repository struct {
	*registry.Client
	root ocispec.Descriptor
}

// OpenRepository resolves a reference such as localhost:5000/kiosk:42.
func OpenRepository(ctx context.Context, ref string, c registry.Config) (*Repository, error) {
	client, err := registry.New(ref, c)
	if err != nil {
		return nil, err
	}
	root, err := client.Resolve(ctx)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &Repository{client, root}, nil
}

// Root implements feed.Repository.
func (r *Repository) Root() ocispec.Descriptor { return r.root }

// Fetch implements feed.Repository.
func (r *Repository) Fetch(ctx context.Context, d ocispec.Descriptor, offset int64) (io.ReadCloser, error) {
	in, err := r.Client.Fetch(ctx, d)
	if err == nil {
		_, err = io.CopyN(io.Discard, in, offset)
	}
	return in, err
}
