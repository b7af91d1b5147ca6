package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A dockerImage is one image in the manifest.json of docker save.
type dockerImage struct {
	Config   string
	RepoTags limitedWords
	Layers   limitedWords
}

// A dockerList is a manifest.json.
type dockerList []dockerImage

// UnmarshalJSON implements json.Unmarshaler. All images together may have at most maxBlobs tags and
// layers.
func (l *dockerList) UnmarshalJSON(b []byte) (err error) {
	left := maxBlobs
	*l, err = decodeList(b, "list of images", maxManifests, func(img *dockerImage) error {
		if left -= len(img.RepoTags) + len(img.Layers); left < 0 {
			return fmt.Errorf("the images have more than %d tags and layers: %w", maxBlobs, errdefs.ErrInvalidArgument)
		}
		return nil
	})
	return err
}

// A namedImage is an image in an archive, with its full reference as its name. The name may be empty.
type namedImage struct {
	name   string
	target ocispec.Descriptor
}

// listImages lists the images of the archive. If there is an OCI layout, docker's manifest.json is
// ignored, because docker save writes both.
func (a *archive) listImages(ctx context.Context) ([]namedImage, error) {
	if b, ok := a.files[ocispec.ImageIndexFile]; ok {
		return a.ociImages(ctx, b)
	}
	b, ok := a.files["manifest.json"]
	if !ok {
		return nil, fmt.Errorf("the archive has neither index.json (OCI layout) nor manifest.json (docker save): %w",
			errdefs.ErrInvalidArgument)
	}
	return a.dockerImages(ctx, b)
}

// ociImages lists the images of an OCI layout. docker and containerd store the full name in the
// annotation io.containerd.image.name.
func (a *archive) ociImages(ctx context.Context, b blob) ([]namedImage, error) {
	var index struct {
		Manifests manifests `json:"manifests"`
	}
	if _, err := a.readFile(ctx, b, maxManifest, &index); err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	var out []namedImage
	for _, m := range index.Manifests {
		name := nameFromArchive(m.Annotations.Image)
		if name == "" {
			name = nameFromArchive(m.Annotations.Ref)
		}
		out = append(out, namedImage{name: name, target: m.toOCI()})
	}
	return out, nil
}

// dockerImages creates manifests for the images of docker save.
func (a *archive) dockerImages(ctx context.Context, b blob) ([]namedImage, error) {
	var list dockerList
	if _, err := a.readFile(ctx, b, maxManifest, &list); err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	var out []namedImage
	for _, img := range list {
		target, err := a.dockerManifest(ctx, img)
		if err != nil {
			return nil, fmt.Errorf("manifest.json: %w", err)
		}
		if len(img.RepoTags) == 0 {
			out = append(out, namedImage{target: target})
		}
		for _, tag := range img.RepoTags {
			n, err := normalizeName(tag)
			if err != nil {
				return nil, fmt.Errorf("manifest.json: %w", err)
			}
			out = append(out, namedImage{name: n.String(), target: target})
		}
	}
	return out, nil
}

// dockerManifest creates the manifest of an image in docker's format, which has no manifest. It
// equals the manifest that containerd creates for an archive with uncompressed layers, so the image
// has the same repo digests as with containerd. The digests of its layers come from the config. They
// are the digests of the uncompressed content, so they do not depend on the compression of the
// archive.
func (a *archive) dockerManifest(ctx context.Context, img dockerImage) (ocispec.Descriptor, error) {
	file, err := a.findFile(img.Config)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var config configDocument
	sum, err := a.readFile(ctx, file, maxConfig, &config)
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("%q: %w", img.Config, err)
	}
	diffs := config.RootFS.DiffIDs
	if len(diffs) != len(img.Layers) {
		return ocispec.Descriptor{}, fmt.Errorf("%d layers for %d entries of the root file system in %q: %w",
			len(img.Layers), len(diffs), img.Config, errdefs.ErrInvalidArgument)
	}
	m := struct {
		SchemaVersion int                  `json:"schemaVersion"`
		MediaType     string               `json:"mediaType"`
		Config        ocispec.Descriptor   `json:"config"`
		Layers        []ocispec.Descriptor `json:"layers"`
	}{
		SchemaVersion: 2,
		MediaType:     images.MediaTypeDockerSchema2Manifest,
		Config:        ocispec.Descriptor{MediaType: images.MediaTypeDockerSchema2Config, Digest: sum, Size: file.size},
		Layers:        []ocispec.Descriptor{},
	}
	for i, name := range img.Layers {
		l, err := a.findFile(name)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		a.blobs[diffs[i]] = l
		m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: images.MediaTypeDockerSchema2Layer, Digest: diffs[i], Size: l.size})
	}
	data, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if a.memory += int64(len(data)); a.memory > 2*smallBlobs {
		return ocispec.Descriptor{}, fmt.Errorf("the archive has too many images: their manifests have more than %d bytes: %w",
			smallBlobs, errdefs.ErrInvalidArgument)
	}
	manifest := blob{size: int64(len(data)), data: data, digest: digest.FromBytes(data)}
	a.blobs[manifest.digest] = manifest
	return ocispec.Descriptor{MediaType: m.MediaType, Digest: manifest.digest, Size: manifest.size}, nil
}

// readFile decodes a JSON file of the archive. The file may have at most maxSize bytes. readFile
// returns the digest of the file, and registers the file as the blob with this digest.
func (a *archive) readFile(ctx context.Context, b blob, maxSize int64, into any) (digest.Digest, error) {
	if b.size > maxSize {
		return "", fmt.Errorf("%d bytes, more than the %d that %s may have: %w", b.size, maxSize, kindOf(maxSize),
			errdefs.ErrInvalidArgument)
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
	a.decoding.Lock()
	err = json.Unmarshal(data, into)
	a.decoding.Unlock()
	if err != nil {
		return "", errors.Join(err, errdefs.ErrInvalidArgument)
	}
	sum := digest.FromBytes(data)
	a.blobs[sum] = b
	return sum, nil
}
