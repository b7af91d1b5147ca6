package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// dockerImage is one image in the manifest.json of docker save.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// named is an image in an archive, with its full reference or "".
type named struct {
	name   string
	target ocispec.Descriptor
}

// images lists what the archive holds. An OCI layout wins over docker's
// manifest.json: docker save writes both.
func (a *archive) images(ctx context.Context) ([]named, error) {
	if b, ok := a.files[ocispec.ImageIndexFile]; ok {
		return a.ociImages(ctx, b)
	}
	b, ok := a.files["manifest.json"]
	if !ok {
		return nil, fmt.Errorf("neither index.json (OCI layout) nor manifest.json (docker save) is in the archive: %w", errdefs.ErrInvalidArgument)
	}
	return a.dockerImages(ctx, b)
}

// imageName is the annotation by which docker and containerd give an image in
// an OCI layout its full name.
const imageName = "io.containerd.image.name"

func (a *archive) ociImages(ctx context.Context, b blob) ([]named, error) {
	var index ocispec.Index
	if _, err := a.readFile(ctx, b, &index); err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) > maxManifests {
		return nil, fmt.Errorf("index.json lists %d images, more than %d: %w", len(index.Manifests), maxManifests, errdefs.ErrInvalidArgument)
	}
	var out []named
	for _, m := range index.Manifests {
		name := nameFromArchive(m.Annotations[imageName])
		if name == "" {
			name = nameFromArchive(m.Annotations[ocispec.AnnotationRefName])
		}
		out = append(out, named{name: name, target: m})
	}
	return out, nil
}

// dockerImages makes manifests of what docker save wrote.
func (a *archive) dockerImages(ctx context.Context, b blob) ([]named, error) {
	var list []dockerImage
	if _, err := a.readFile(ctx, b, &list); err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	if len(list) > maxManifests {
		return nil, fmt.Errorf("manifest.json lists %d images, more than %d: %w", len(list), maxManifests, errdefs.ErrInvalidArgument)
	}
	var out []named
	for _, img := range list {
		target, err := a.dockerManifest(ctx, img)
		if err != nil {
			return nil, fmt.Errorf("manifest.json: %w", err)
		}
		if len(img.RepoTags) == 0 {
			out = append(out, named{target: target})
		}
		for _, tag := range img.RepoTags {
			n, err := normalize(tag)
			if err != nil {
				return nil, fmt.Errorf("manifest.json: %w", err)
			}
			out = append(out, named{name: n.String(), target: target})
		}
	}
	return out, nil
}

// dockerManifest makes the manifest that an image in docker's form lacks. Its
// layers are named by their plain content, which the config lists: so it is the
// same however the archive compresses them.
func (a *archive) dockerManifest(ctx context.Context, img dockerImage) (ocispec.Descriptor, error) {
	file, err := a.file(img.Config)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var config ocispec.Image
	sum, err := a.readFile(ctx, file, &config)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("%q: %w", img.Config, err)
	}
	diffs := config.RootFS.DiffIDs
	if len(diffs) != len(img.Layers) {
		return ocispec.Descriptor{}, fmt.Errorf("%d layers for %d entries of the root file system in %q: %w", len(img.Layers), len(diffs), img.Config, errdefs.ErrInvalidArgument)
	}
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: sum, Size: file.size},
		Layers:    []ocispec.Descriptor{},
	}
	for i, name := range img.Layers {
		l, err := a.file(name)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		a.blobs[diffs[i]] = l
		m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: diffs[i], Size: l.size})
	}
	data, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	made := blob{size: int64(len(data)), data: data, digest: digest.FromBytes(data)}
	a.blobs[made.digest] = made
	return ocispec.Descriptor{MediaType: m.MediaType, Digest: made.digest, Size: made.size}, nil
}

// readFile decodes a JSON file of the archive and returns its digest, by which
// it can be read from then on.
func (a *archive) readFile(ctx context.Context, b blob, into any) (digest.Digest, error) {
	if b.size > maxJSON {
		return "", fmt.Errorf("%d bytes, more than the %d that manifests and configs may have: %w", b.size, maxJSON, errdefs.ErrInvalidArgument)
	}
	ra, err := a.open(ctx, b)
	if err != nil {
		return "", err
	}
	defer ra.Close()
	data, err := io.ReadAll(content.NewReader(ra))
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return "", errors.Join(err, errdefs.ErrInvalidArgument)
	}
	sum := digest.FromBytes(data)
	a.blobs[sum] = b
	return sum, nil
}
