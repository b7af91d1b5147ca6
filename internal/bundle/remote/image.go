package remote

import (
	"context"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/registry"
)

// Images reads images from registries. It implements build.Registries.
type Images struct{ registry.Config }

// Resolve returns the digest to which the registry resolves a complete image name. A hostile registry can return any digest, so a person
// must check it.
func (i Images) Resolve(ctx context.Context, name string) (digest.Digest, error) {
	client, err := registry.New(name, i.Config)
	if err != nil {
		return "", err
	}
	defer client.Close()
	d, err := client.Resolve(ctx)
	if err == nil && !bundle.IsImageManifest(d.MediaType) && !bundle.IsImageIndex(d.MediaType) {
		err = fmt.Errorf("%s: the server answers with the type %.100q instead of an image: it is not a registry, or has "+
			"something else there", name, d.MediaType)
	}
	return d.Digest, err
}

// Open returns the image of a repository with a digest. When ctx ends, reads of the layout fail. The caller closes the layout.
func (i Images) Open(ctx context.Context, repository string, d digest.Digest) (bundle.Layout, ocispec.Descriptor, error) {
	client, err := registry.New(strings.Join([]string{repository, d.String()}, "@"), i.Config)
	if err != nil {
		return nil, ocispec.Descriptor{}, err
	}
	target, err := client.Resolve(ctx)
	if err != nil {
		client.Close()
		return nil, ocispec.Descriptor{}, err
	}
	return &Layout{ctx: ctx, client: client}, target, nil
}
