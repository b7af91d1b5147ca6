package image

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/sorting"
)

// maxNested is the maximum depth of nested indexes.
const maxNested = 4

// maxListed is the maximum number of other platforms that an error lists.
const maxListed = 16

// A pickedImage is the image for this host's platform.
type pickedImage struct {
	parents  []ocispec.Descriptor // the indexes above the manifest, outermost first
	manifest ocispec.Descriptor
	config   ocispec.Descriptor
	layers   []ocispec.Descriptor
	image    ocispec.Image
}

// A candidate is a manifest that may be for this host's platform.
type candidate struct {
	parents  []ocispec.Descriptor
	desc     ocispec.Descriptor
	platform *ocispec.Platform // nil if only the config contains the platform
}

// chooseImage finds the image for the host's platform at or below a descriptor. It checks that the manifest and the config are consistent.
// If no image is for this platform, the error is errdefs.ErrNotFound and lists the image's platforms.
func (s *Service) chooseImage(ctx context.Context, target ocispec.Descriptor, read readFunc) (*pickedImage, error) {
	d := s.newDocuments(read)
	defer d.keepOnly(nil)
	return s.chooseOf(ctx, target, d)
}

// chooseOf is like chooseImage, but with the documents of the caller, who can continue to use them.
func (s *Service) chooseOf(ctx context.Context, target ocispec.Descriptor, d *documentReader) (*pickedImage, error) {
	w := walk{service: s, read: d, left: maxManifests}
	found, err := w.listCandidates(ctx, target, nil)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(c candidate) bool {
		return c.platform != nil && (c.platform.OS == "unknown" || c.desc.ArtifactType != "")
	})
	sorting.StableBy(found, func(a, b candidate) int { return s.comparePlatforms(a.platform, b.platform) })
	for _, c := range found {
		if c.platform != nil && !s.platform.Match(*c.platform) {
			w.addSeen(*c.platform)
			continue
		}
		p, err := readPick(ctx, c, d)
		if err != nil {
			return nil, err
		}
		if c.platform == nil && p.image.Architecture != "" {
			if has := platforms.Normalize(p.image.Platform); !s.platform.Match(has) {
				w.addSeen(has)
				continue
			}
		}
		return p, nil
	}
	return nil, &wrongPlatform{want: platforms.Format(platforms.DefaultSpec()), have: w.seen}
}

// wrongPlatform is the error of an image that has no variant for this host.
type wrongPlatform struct {
	want string
	have []string
}

func (w *wrongPlatform) Error() string {
	return fmt.Sprintf("no image for %s, only for %v", w.want, w.have)
}

// Is implements the method that errors.Is calls: a wrongPlatform counts as errdefs.ErrNotFound.
func (w *wrongPlatform) Is(target error) bool { return target == errdefs.ErrNotFound }

// comparePlatforms orders platforms: the best match is first, and unknown platforms are last.
func (s *Service) comparePlatforms(a, b *ocispec.Platform) int {
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

// A walk collects the manifests below an index. left limits the number of entries, because a
// hostile index may refer to the same indexes many times.
type walk struct {
	service *Service
	read    *documentReader
	left    int
	seen    []string // platforms that do not match
}

// addSeen adds a platform to the list for the error.
func (w *walk) addSeen(p ocispec.Platform) {
	if name := platforms.Format(p); len(w.seen) < maxListed && !slices.Contains(w.seen, name) {
		w.seen = append(w.seen, name)
	}
}

// listCandidates lists the manifests below desc. It does not read manifests, and skips indexes of other
// platforms, because an archive may lack the blobs of other platforms.
func (w *walk) listCandidates(ctx context.Context, desc ocispec.Descriptor, parents []ocispec.Descriptor) ([]candidate, error) {
	w.left--
	if w.left < 0 {
		return nil, fmt.Errorf("index %s has more than %d entries: %w", desc.Digest, maxManifests, errdefs.ErrInvalidArgument)
	}
	if images.IsManifestType(desc.MediaType) {
		return []candidate{{parents: parents, desc: desc, platform: desc.Platform}}, nil
	}
	if len(parents) > 0 && desc.Platform != nil && !w.service.platform.Match(*desc.Platform) {
		w.addSeen(*desc.Platform)
		return nil, nil
	}
	if len(parents) == maxNested {
		return nil, fmt.Errorf("index %s: more than %d nested indexes: %w", desc.Digest, maxNested, errdefs.ErrInvalidArgument)
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
		below, err := w.listCandidates(ctx, m.toOCI(), parents)
		if err != nil {
			return nil, err
		}
		out = append(out, below...)
	}
	return out, nil
}

func readDocument(ctx context.Context, desc ocispec.Descriptor, d *documentReader) (document, error) {
	var doc document
	if err := d.decode(ctx, desc, maxManifest, &doc); err != nil {
		return document{}, err
	}
	switch {
	case doc.SchemaVersion == 1 || desc.MediaType == images.MediaTypeDockerSchema1Manifest:
		return document{}, fmt.Errorf("manifest %s has the schema 1 of old registries, which is not supported: build the image again: %w",
			desc.Digest, errdefs.ErrNotImplemented)
	case doc.isIndex() && (doc.Config != nil || len(doc.Layers) > 0):
		return document{}, fmt.Errorf("%s is both an index and a manifest: %w", desc.Digest, errdefs.ErrInvalidArgument)
	}
	return doc, nil
}

func readPick(ctx context.Context, c candidate, d *documentReader) (*pickedImage, error) {
	doc, err := readDocument(ctx, c.desc, d)
	if err != nil {
		return nil, err
	}
	if doc.Config == nil || doc.isIndex() {
		return nil, fmt.Errorf("manifest %s has no config: %w", c.desc.Digest, errdefs.ErrInvalidArgument)
	}
	if err := doc.Config.check(); err != nil {
		return nil, fmt.Errorf("manifest %s: config: %w", c.desc.Digest, err)
	}
	p := &pickedImage{parents: c.parents, manifest: c.desc, config: doc.Config.toOCI()}
	if p.manifest.MediaType == "" {
		p.manifest.MediaType = ocispec.MediaTypeImageManifest
	}
	var config configDocument
	if err := d.decode(ctx, p.config, maxConfig, &config); err != nil {
		return nil, err
	}
	if p.image, err = config.toOCI(); err != nil {
		return nil, fmt.Errorf("config %s: %w", p.config.Digest, err)
	}
	for _, l := range doc.Layers {
		if images.IsLayerType(l.MediaType) {
			// Drop the other fields, so that there are no foreign URLs and a layer has the same
			// download key in every image.
			p.layers = append(p.layers, ocispec.Descriptor{MediaType: l.MediaType, Digest: l.Digest, Size: l.Size})
		}
	}
	return p, p.check()
}

// check returns an error if the layers do not match the config's root file system.
func (p *pickedImage) check() error {
	for _, l := range p.layers {
		if err := l.Digest.Validate(); err != nil {
			return fmt.Errorf("manifest %s: layer %q: %w: %w", p.manifest.Digest, l.Digest, err, errdefs.ErrInvalidArgument)
		}
	}
	diffs := p.image.RootFS.DiffIDs
	if len(p.layers) != len(diffs) || len(p.layers) > maxLayers {
		return fmt.Errorf("image %s has %d layers for %d entries of its root file system (at most %d): %w",
			p.config.Digest, len(p.layers), len(diffs), maxLayers, errdefs.ErrInvalidArgument)
	}
	for _, d := range diffs {
		if err := d.Validate(); err != nil {
			return fmt.Errorf("image %s: layer %q: %w: %w", p.config.Digest, d, err, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}
