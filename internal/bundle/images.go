package bundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A PlatformImage is an image of a bundle for one platform.
type PlatformImage struct {
	Name     string
	Platform string
	Manifest ocispec.Descriptor
	Config   ocispec.Descriptor
	Layers   []ocispec.Descriptor
	ChainIDs []digest.Digest // of the unpacked layers, as containerd's snapshots have them
}

// VisitImages reads the manifests and configs of the images, one after the other, and calls visit for each.
func (b *Bundle) VisitImages(ctx context.Context, visit func(*PlatformImage) error) error {
	for _, img := range b.Contents.Images {
		for _, m := range img.Manifests {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			p, err := ReadImage(b.layout, ocispec.Descriptor{MediaType: m.MediaType, Digest: m.Digest, Size: m.Size})
			if err == nil && p.Platform != m.Platform {
				err = fmt.Errorf("its config is for %s", p.Platform)
			}
			if err != nil {
				return fmt.Errorf("image %s for %s: %w", img.Name, m.Platform, err)
			}
			p.Name = img.Name
			if err := visit(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// ReadImage reads the manifest and the config of an image. The result has no name.
func ReadImage(l Layout, desc ocispec.Descriptor) (*PlatformImage, error) {
	text, err := ReadBlob(l, desc, MaxDocument)
	if err != nil {
		return nil, err
	}
	var m ocispec.Manifest
	if err := decode(text, &m); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", desc.Digest, err)
	}
	p := &PlatformImage{Manifest: desc, Config: strip(m.Config)}
	if m.MediaType != "" && m.MediaType != desc.MediaType {
		return nil, fmt.Errorf("the manifest has the type %.100q instead of %q", m.MediaType, desc.MediaType)
	}
	if !isImageConfig(m.Config.MediaType) || m.ArtifactType != "" {
		return nil, fmt.Errorf("it is not an image, because its config has the type %.100q", m.Config.MediaType)
	}
	if len(m.Layers) > maxImageLayers {
		return nil, fmt.Errorf("it has %d layers, and at most %d are allowed", len(m.Layers), maxImageLayers)
	}
	for _, d := range m.Layers {
		if err := checkDescriptor(d.Digest, d.Size, MaxBlob); err != nil {
			return nil, err
		}
		if !isLayer(d.MediaType) {
			return nil, fmt.Errorf("its layer %s has the unknown type %.100q", d.Digest, d.MediaType)
		}
		p.Layers = append(p.Layers, strip(d))
	}
	if text, err = ReadBlob(l, m.Config, MaxDocument); err != nil {
		return nil, err
	}
	return p, p.readConfig(text)
}

// strip returns a descriptor with only the fields that identify a blob.
func strip(d ocispec.Descriptor) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
}

func isImageConfig(mediaType string) bool {
	return mediaType == ocispec.MediaTypeImageConfig || mediaType == "application/vnd.docker.container.image.v1+json"
}

func isLayer(mediaType string) bool {
	switch mediaType {
	case ocispec.MediaTypeImageLayer, ocispec.MediaTypeImageLayerGzip, ocispec.MediaTypeImageLayerZstd,
		"application/vnd.docker.image.rootfs.diff.tar", "application/vnd.docker.image.rootfs.diff.tar.gzip",
		"application/vnd.docker.image.rootfs.diff.tar.zstd":
		return true
	}
	return false
}

// readConfig reads the platform and the IDs of the layers from an image's config.
func (p *PlatformImage) readConfig(text []byte) error {
	var config struct { // other fields do not matter here
		ocispec.Platform
		RootFS ocispec.RootFS `json:"rootfs"`
	}
	if err := decode(text, &config); err != nil {
		return fmt.Errorf("config %s: %w", p.Config.Digest, err)
	}
	p.Platform = FormatPlatform(config.Platform)
	if !platformForm.matches(p.Platform) {
		return fmt.Errorf("its config has no platform, but %.80q", p.Platform)
	}
	if len(config.RootFS.DiffIDs) != len(p.Layers) {
		return fmt.Errorf("its config has %d layers, its manifest has %d", len(config.RootFS.DiffIDs), len(p.Layers))
	}
	chain := digest.Digest("")
	for _, d := range config.RootFS.DiffIDs {
		if err := CheckDigest(d); err != nil {
			return err
		}
		if chain == "" {
			chain = d
		} else {
			chain = digest.NewDigestFromBytes(digest.SHA256, hash(chain.String()+" "+d.String()))
		}
		p.ChainIDs = append(p.ChainIDs, chain)
	}
	return nil
}

func hash(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// FormatPlatform returns the text of a platform, such as linux/arm/v7. The variant v8 of arm64 is the only one, so it is left out.
func FormatPlatform(p ocispec.Platform) string {
	text := p.OS + "/" + p.Architecture
	if p.Variant != "" && (p.Architecture != "arm64" || p.Variant != "v8") {
		text += "/" + p.Variant
	}
	return text
}

// ParsePlatform parses the text of a platform.
func ParsePlatform(text string) (*ocispec.Platform, error) {
	if !platformForm.matches(text) {
		return nil, fmt.Errorf("%.80q is not a platform such as linux/arm64", text)
	}
	part := strings.Split(text, "/")
	p := &ocispec.Platform{OS: part[0], Architecture: part[1]}
	if len(part) == 3 {
		p.Variant = part[2]
	}
	return p, nil
}

// Blobs returns every blob that the contents manifest reaches, each once, in the order of a tar: contents.json, files, image manifests,
// image configs, layers.
func (b *Bundle) Blobs(ctx context.Context) ([]ocispec.Descriptor, error) {
	l := newBlobList()
	l.add(strip(b.config))
	for _, f := range b.Files {
		l.add(strip(f.Descriptor))
	}
	var images, configs, layers []ocispec.Descriptor
	err := b.VisitImages(ctx, func(p *PlatformImage) error {
		images, configs = append(images, p.Manifest), append(configs, p.Config)
		for _, d := range p.Layers { // an image has at most maxImageLayers, so this slice has a limit only with the check below
			layers = append(layers, d)
		}
		if len(layers) > maxAllLayers {
			return fmt.Errorf("the images have more than %d layers", maxAllLayers)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.add(images...)
	l.add(configs...)
	l.add(layers...)
	if l.err == nil && l.size != b.Contents.Size {
		l.err = fmt.Errorf("the blobs have %d bytes, contents.json says %d", l.size, b.Contents.Size)
	}
	return l.blobs, l.err
}

// maxAllLayers is the maximum number of layers of all images, including those that images share.
const maxAllLayers = 2 * MaxBlobs

// A blobList is a list of different blobs.
type blobList struct {
	blobs []ocispec.Descriptor
	sizes map[digest.Digest]int64
	size  int64
	err   error
}

func newBlobList() *blobList { return &blobList{sizes: map[digest.Digest]int64{}} }

func (l *blobList) add(all ...ocispec.Descriptor) {
	for _, d := range all {
		size, known := l.sizes[d.Digest]
		switch {
		case l.err != nil:
			return
		case known && size != d.Size:
			l.err = fmt.Errorf("%s has two sizes, %d and %d", d.Digest, size, d.Size)
			return
		case known:
			continue
		case len(l.blobs) == MaxBlobs:
			l.err = fmt.Errorf("more than %d blobs", MaxBlobs)
			return
		}
		l.sizes[d.Digest] = d.Size
		l.size += d.Size
		l.blobs = append(l.blobs, d)
	}
}

// Verify reads every blob that the contents manifest reaches, and checks its size and digest. While it reads, it calls progress with the
// number of bytes that were read so far and the total. The error names all blobs that are missing or wrong, at most maxWrong of them.
func (b *Bundle) Verify(ctx context.Context, progress func(done, total int64)) error {
	blobs, err := b.Blobs(ctx)
	if err != nil {
		return err
	}
	m := &meter{total: b.Contents.Size, report: func(done, total int64) error {
		progress(done, total)
		return context.Cause(ctx)
	}}
	end := int64(0)
	var errs []error
	for _, d := range blobs {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := CopyBlob(m, b.layout, d, MaxBlob); err != nil {
			errs = append(errs, err)
		}
		if len(errs) == maxWrong {
			break
		}
		end += d.Size
		m.done = end // a missing blob also counts
	}
	return errors.Join(errs...)
}

const maxWrong = 20
