package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/registry"
)

// Scheme is the beginning of the name of a bundle in a registry.
const Scheme = "oci://"

// Is reports whether a name is the name of a bundle in a registry.
func Is(name string) bool { return strings.HasPrefix(name, Scheme) }

// newClient returns a client for the name of a bundle in a registry.
func newClient(name string, c registry.Config) (*registry.Client, error) {
	client, err := registry.New(strings.TrimPrefix(name, Scheme), c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return client, nil
}

// A Layout is a bundle.Layout that reads a repository in a registry. Its index.json has one entry, which is the root that the tag named
// when the Layout was opened.
type Layout struct {
	// ctx is the context of all requests. It is a field because the methods of a bundle.Layout have no context as a parameter.
	ctx    context.Context
	client *registry.Client
	root   ocispec.Descriptor
}

var _ interface {
	bundle.Layout
	bundle.BlobOpener
} = (*Layout)(nil)

// Open resolves the tag of a bundle in a registry. When ctx ends, all reads from the Layout fail.
func Open(ctx context.Context, name string, c registry.Config) (*Layout, error) {
	client, err := newClient(name, c)
	if err != nil {
		return nil, err
	}
	root, err := client.Resolve(ctx)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &Layout{ctx, client, root}, nil
}

// ReadFile returns oci-layout or index.json of a layout whose root is in a registry.
func ReadFile(root ocispec.Descriptor, name string) ([]byte, error) {
	switch name {
	case ocispec.ImageIndexFile:
		return json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex, Manifests: []ocispec.Descriptor{root}})
	case ocispec.ImageLayoutFile:
		return []byte(`{"imageLayoutVersion":"` + ocispec.ImageLayoutVersion + `"}`), nil
	}
	return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// Open opens oci-layout or index.json.
func (l *Layout) Open(name string) (io.ReadCloser, int64, error) {
	text, err := ReadFile(l.root, name)
	if err != nil {
		return nil, 0, err
	}
	return io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
}

// OpenBlob requests a blob or a manifest. It returns the size in the descriptor. The registry may send fewer or more bytes.
func (l *Layout) OpenBlob(d ocispec.Descriptor) (io.ReadCloser, int64, error) {
	r, err := l.client.Fetch(l.ctx, d)
	return r, d.Size, err
}

// Close closes the connections.
func (l *Layout) Close() error { return l.client.Close() }
