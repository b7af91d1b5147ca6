package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxJSON bounds an index, manifest or config, in bytes. Registries take 4 MiB.
	maxJSON = 8 << 20
	// maxNested bounds how deep indexes hold indexes.
	maxNested = 4
	// maxManifests bounds what an index and those in it list.
	maxManifests = 1024
	// maxLayers bounds the layers of an image; overlayfs mounts fewer than 500.
	maxLayers = 500
)

// readFunc reads a small blob: an index, a manifest or a config.
type readFunc func(context.Context, ocispec.Descriptor) ([]byte, error)

// pick is the image for this host within what a name points to.
type pick struct {
	parents  []ocispec.Descriptor // indexes above the manifest, outermost first
	manifest ocispec.Descriptor
	config   ocispec.Descriptor
	layers   []ocispec.Descriptor
	image    ocispec.Image
}

// document is an index or a manifest.
type document struct {
	SchemaVersion int                  `json:"schemaVersion"`
	MediaType     string               `json:"mediaType"`
	Manifests     []ocispec.Descriptor `json:"manifests"`
	Config        *ocispec.Descriptor  `json:"config"`
	Layers        []ocispec.Descriptor `json:"layers"`
}

func (d document) isIndex() bool { return len(d.Manifests) > 0 }

// candidate is a manifest that may fit the host.
type candidate struct {
	parents  []ocispec.Descriptor
	desc     ocispec.Descriptor
	platform *ocispec.Platform // nil: only its config can tell
}

// choose finds the image for the host's platform in target, reading blobs by
// read, and checks that manifest and config fit together. Without a fitting one
// the error is errdefs.ErrNotFound and names the platforms that there are.
func (s *Service) choose(ctx context.Context, target ocispec.Descriptor, read readFunc) (*pick, error) {
	w := walk{read: read, left: maxManifests}
	all, err := w.candidates(ctx, target, nil)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c candidate) bool {
		return c.platform != nil && (c.platform.OS == "unknown" || c.desc.ArtifactType != "")
	})
	slices.SortStableFunc(all, func(a, b candidate) int { return s.compare(a.platform, b.platform) })
	seen := []string{}
	for _, c := range all {
		if c.platform != nil && !s.platform.Match(*c.platform) {
			seen = append(seen, platforms.Format(*c.platform))
			continue
		}
		p, err := readPick(ctx, c, read)
		if err != nil {
			return nil, err
		}
		if c.platform == nil && p.image.Architecture != "" {
			if has := platforms.Normalize(p.image.Platform); !s.platform.Match(has) {
				seen = append(seen, platforms.Format(has))
				continue
			}
		}
		return p, nil
	}
	return nil, &wrongPlatform{want: platforms.Format(platforms.DefaultSpec()), have: seen}
}

// wrongPlatform says that an image is for other hosts than this one.
type wrongPlatform struct {
	want string
	have []string
}

func (w *wrongPlatform) Error() string {
	return fmt.Sprintf("no image for %s, only for %v", w.want, w.have)
}

// Is makes it errdefs.ErrNotFound.
func (w *wrongPlatform) Is(target error) bool { return target == errdefs.ErrNotFound }

// compare puts what fits best first and what is not known last.
func (s *Service) compare(a, b *ocispec.Platform) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	case s.platform.Less(*a, *b):
		return -1
	case s.platform.Less(*b, *a):
		return 1
	}
	return 0
}

// walk goes through indexes, and through no more entries than left: hostile
// indexes may hold themselves many times over.
type walk struct {
	read readFunc
	left int
}

// candidates lists the manifests below desc. Manifests are not read: an archive
// may lack those of other platforms.
func (w *walk) candidates(ctx context.Context, desc ocispec.Descriptor, parents []ocispec.Descriptor) ([]candidate, error) {
	if w.left--; w.left < 0 {
		return nil, fmt.Errorf("index %s holds more than %d entries: %w", desc.Digest, maxManifests, errdefs.ErrInvalidArgument)
	}
	if images.IsManifestType(desc.MediaType) {
		return []candidate{{parents: parents, desc: desc, platform: desc.Platform}}, nil
	}
	if len(parents) == maxNested {
		return nil, fmt.Errorf("index %s: more than %d indexes in each other: %w", desc.Digest, maxNested, errdefs.ErrInvalidArgument)
	}
	doc, err := readDocument(ctx, desc, w.read)
	if err != nil {
		return nil, err
	}
	if !doc.isIndex() {
		return []candidate{{parents: parents, desc: desc, platform: desc.Platform}}, nil
	}
	parents = append(slices.Clip(parents), desc)
	var out []candidate
	for _, m := range doc.Manifests {
		if !images.IsIndexType(m.MediaType) && !images.IsManifestType(m.MediaType) && m.MediaType != "" {
			continue // not an image
		}
		below, err := w.candidates(ctx, m, parents)
		if err != nil {
			return nil, err
		}
		out = append(out, below...)
	}
	return out, nil
}

func readDocument(ctx context.Context, desc ocispec.Descriptor, read readFunc) (document, error) {
	var doc document
	if err := readJSON(ctx, desc, read, &doc); err != nil {
		return document{}, err
	}
	switch {
	case doc.SchemaVersion == 1 || desc.MediaType == images.MediaTypeDockerSchema1Manifest:
		return document{}, fmt.Errorf("manifest %s has the schema 1 of old registries, which is not supported: build the image again: %w", desc.Digest, errdefs.ErrNotImplemented)
	case doc.isIndex() && (doc.Config != nil || len(doc.Layers) > 0):
		return document{}, fmt.Errorf("%s is an index and a manifest at once: %w", desc.Digest, errdefs.ErrInvalidArgument)
	}
	return doc, nil
}

func readPick(ctx context.Context, c candidate, read readFunc) (*pick, error) {
	doc, err := readDocument(ctx, c.desc, read)
	if err != nil {
		return nil, err
	}
	if doc.Config == nil || doc.isIndex() {
		return nil, fmt.Errorf("manifest %s has no config: %w", c.desc.Digest, errdefs.ErrInvalidArgument)
	}
	p := &pick{parents: c.parents, manifest: c.desc, config: *doc.Config}
	if p.manifest.MediaType == "" {
		p.manifest.MediaType = ocispec.MediaTypeImageManifest
	}
	if err := readJSON(ctx, p.config, read, &p.image); err != nil {
		return nil, err
	}
	for _, l := range doc.Layers {
		if images.IsLayerType(l.MediaType) {
			// No foreign sources, and the same download key in every image.
			p.layers = append(p.layers, ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size})
		}
	}
	for _, l := range p.layers {
		if err := l.Digest.Validate(); err != nil {
			return nil, fmt.Errorf("manifest %s: layer %q: %w: %w", c.desc.Digest, l.Digest, err, errdefs.ErrInvalidArgument)
		}
	}
	diffs := p.image.RootFS.DiffIDs
	if len(p.layers) != len(diffs) || len(p.layers) > maxLayers {
		return nil, fmt.Errorf("image %s has %d layers for %d entries of its root file system (at most %d): %w",
			p.config.Digest, len(p.layers), len(diffs), maxLayers, errdefs.ErrInvalidArgument)
	}
	for _, d := range diffs {
		if err := d.Validate(); err != nil {
			return nil, fmt.Errorf("image %s: layer %q: %w: %w", p.config.Digest, d, err, errdefs.ErrInvalidArgument)
		}
	}
	return p, nil
}

func readJSON(ctx context.Context, desc ocispec.Descriptor, read readFunc, into any) error {
	if err := desc.Digest.Validate(); err != nil {
		return fmt.Errorf("digest %q: %w: %w", desc.Digest, err, errdefs.ErrInvalidArgument)
	}
	if desc.Size > maxJSON {
		return fmt.Errorf("%s has %d bytes, more than the %d that manifests and configs may have: %w", desc.Digest, desc.Size, maxJSON, errdefs.ErrInvalidArgument)
	}
	b, err := read(ctx, desc)
	if err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("read %s: %w", desc.Digest, errors.Join(err, errdefs.ErrInvalidArgument))
	}
	return nil
}
