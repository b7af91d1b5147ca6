package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/runtime/cri"
)

// A BundleImage is an image of a bundle, for the platform of this host.
type BundleImage struct {
	Name     string // with the digest, such as docker.io/library/web@sha256:...; the image store has the image under this name
	Manifest ocispec.Descriptor
}

// ChooseBundleImage chooses the manifest for the platform of this host. It does no I/O.
func (s *Service) ChooseBundleImage(img bundle.Image) (BundleImage, error) {
	named, err := reference.ParseNormalizedNamed(img.Name)
	if err != nil {
		return BundleImage{}, fmt.Errorf("image %q: %w", img.Name, err)
	}
	var found []ocispec.Descriptor
	var other []string
	for _, m := range img.Manifests {
		p, err := bundle.ParsePlatform(m.Platform)
		if err != nil {
			return BundleImage{}, err
		}
		if !s.platform.Match(*p) {
			other = append(other, m.Platform)
			continue
		}
		found = append(found, ocispec.Descriptor{MediaType: m.MediaType, Digest: m.Digest, Size: m.Size, Platform: p})
	}
	if len(found) == 0 {
		err := &wrongPlatform{want: platforms.Format(platforms.DefaultSpec()), have: other}
		return BundleImage{}, fmt.Errorf("image %s: %w", img.Name, err)
	}
	sorting.StableBy(found, func(a, b ocispec.Descriptor) int { return s.comparePlatforms(a.Platform, b.Platform) })
	best := found[0]
	best.Platform = nil
	return BundleImage{Name: withDigest(named, best.Digest), Manifest: best}, nil
}

// HasBundleImage reports whether the image exists.
func (s *Service) HasBundleImage(ctx context.Context, img BundleImage) bool {
	return s.recordedID(withNamespace(ctx), img.Name, img.Manifest.Digest) != ""
}

// ImportBundleImage unpacks an image of a bundle and records it under img.Name, unless the image exists. It verifies the digests of the
// documents and of the unpacked layers while it reads them, so a layout that changes between two reads does no harm. If it fails, it
// records nothing.
func (s *Service) ImportBundleImage(ctx context.Context, l bundle.Layout, img BundleImage, progress func(cri.ImportProgress)) error {
	progress, end := s.active.trackActivity(img.Name, 0, progress)
	defer end()
	progress(cri.ImportProgress{Ref: img.Name, Status: "unpacking"})
	ctx, done, err := s.withLease(withNamespace(ctx))
	if err != nil {
		return err
	}
	defer done()
	read := func(_ context.Context, d ocispec.Descriptor) ([]byte, error) {
		return bundle.ReadBlob(l, d, bundle.MaxDocument)
	}
	p, err := s.chooseImage(ctx, img.Manifest, read)
	if err != nil {
		return fmt.Errorf("image %s: %w", img.Name, err)
	}
	if s.recordedID(ctx, img.Name, p.manifest.Digest) != "" {
		return nil
	}
	unpacked, err := s.countUnpacked(ctx, p.chainIDs())
	if err == nil {
		err = s.unpackLayers(ctx, p, unpacked, layoutProvider{l})
	}
	if err == nil {
		err = s.storeDocuments(ctx, p, read)
	}
	if err == nil {
		err = s.recordName(ctx, img.Name, p.manifest, p.newEntry())
	}
	if err != nil {
		return fmt.Errorf("image %s: %w", img.Name, err)
	}
	s.notifyChange()
	return nil
}

// A layoutProvider opens the layers of a bundle.
type layoutProvider struct{ layout bundle.Layout }

// ReaderAt opens a layer. The caller must read it with content.NewReader, from its beginning to its end.
func (p layoutProvider) ReaderAt(_ context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := bundle.OpenBlob(p.layout, desc)
	if err != nil {
		return nil, err
	}
	return layoutReader{r, desc.Size}, nil
}

// A layoutReader is a content.ReaderAt that can only be read as a stream.
type layoutReader struct {
	io.ReadCloser
	size int64
}

// Reader returns a stream for content.NewReader.
func (r layoutReader) Reader() io.Reader { return io.LimitReader(r.ReadCloser, r.size) }

func (r layoutReader) Size() int64 { return r.size }

func (r layoutReader) ReadAt([]byte, int64) (int, error) {
	return 0, errors.New("a layer of a bundle can only be read as a stream")
}

// MissingBytes returns the number of bytes of the image's layers that are not unpacked on this node.
func (s *Service) MissingBytes(ctx context.Context, l bundle.Layout, img BundleImage) (bytes int64, err error) {
	ctx = withNamespace(ctx)
	p, err := bundle.ReadImage(l, img.Manifest)
	if err != nil {
		return 0, fmt.Errorf("image %s: %w", img.Name, err)
	}
	for i := len(p.Layers) - 1; i >= 0; i-- {
		_, err := s.snapshotter().Stat(ctx, p.ChainIDs[i].String())
		if err == nil {
			break // the layers below it exist too
		}
		if !errdefs.IsNotFound(err) {
			return 0, fmt.Errorf("snapshot %s: %w", p.ChainIDs[i], err)
		}
		bytes += p.Layers[i].Size
	}
	return bytes, nil
}
