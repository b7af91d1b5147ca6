package build

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/podspec"
)

// imageName is the annotation in which docker and containerd store the complete name.
const imageName = "io.containerd.image.name"

// readJSON reads a file of an archive. It reports false if there is none.
func readJSON(l bundle.Layout, name string, into any) (found bool, err error) {
	r, _, err := l.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, bundle.MaxDocument+1))
	switch {
	case err != nil:
	case len(text) > bundle.MaxDocument:
		err = fmt.Errorf("it has more than %d bytes", bundle.MaxDocument)
	default:
		if err = inputweight.JSON(text, into, maxWeight); err == nil {
			err = json.Unmarshal(text, into)
		}
	}
	if err != nil {
		return true, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// ociImages lists the images of an OCI layout. It returns nil if there is none.
func ociImages(l bundle.Layout) ([]candidate, error) {
	var index ocispec.Index
	found, err := readJSON(l, ocispec.ImageIndexFile, &index)
	if err != nil || !found {
		return nil, err
	}
	out := []candidate{}
	for _, d := range index.Manifests {
		if err := bundle.CheckDigest(d.Digest); err != nil {
			return nil, fmt.Errorf("%s: %w", ocispec.ImageIndexFile, err)
		}
		name := completeName(d.Annotations[imageName])
		if name == "" {
			name = completeName(d.Annotations[ocispec.AnnotationRefName])
		}
		out = append(out, candidate{name, d})
	}
	return out, nil
}

// completeName returns the complete name for an annotation. It returns "" for a tag without a name, such as "1.29".
func completeName(text string) string {
	if !strings.ContainsAny(text, "/:@") || podspec.CheckImage(text) != nil {
		return ""
	}
	return podspec.FullImage(text)
}

// A dockerImage is one image in the manifest.json of docker save.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// dockerImages lists the images in an archive of docker save, and returns a layout with manifests for them. It also writes the
// bytes of their blobs to count.
func dockerImages(l bundle.Layout, count io.Writer) (bundle.Layout, []candidate, error) {
	var list []dockerImage
	found, err := readJSON(l, "manifest.json", &list)
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, errors.New("it has neither index.json (OCI layout) nor manifest.json (docker save)")
	}
	m := &memory{l, map[string][]byte{}, map[string]string{}}
	var out []candidate
	for _, img := range list {
		target, err := m.addManifest(img, count)
		if err != nil {
			return nil, nil, fmt.Errorf("manifest.json: %w", err)
		}
		if len(img.RepoTags) == 0 {
			out = append(out, candidate{"", target})
		}
		for _, tag := range img.RepoTags {
			out = append(out, candidate{completeName(tag), target})
		}
	}
	return m, out, nil
}

// Media types of the blobs of docker save. The manifest equals the manifest that islet images import and containerd create, if the layers
// are not compressed.
const (
	dockerConfig = "application/vnd.docker.container.image.v1+json"
	dockerLayer  = "application/vnd.docker.image.rootfs.diff.tar"
)

// addManifest creates the manifest of an image of docker save, which has none.
func (m *memory) addManifest(img dockerImage, count io.Writer) (ocispec.Descriptor, error) {
	manifest := struct {
		SchemaVersion int                  `json:"schemaVersion"`
		MediaType     string               `json:"mediaType"`
		Config        ocispec.Descriptor   `json:"config"`
		Layers        []ocispec.Descriptor `json:"layers"`
	}{2, bundle.DockerManifest, ocispec.Descriptor{}, []ocispec.Descriptor{}}
	var err error
	if manifest.Config, err = m.addFile(img.Config, dockerConfig, count); err != nil {
		return ocispec.Descriptor{}, err
	}
	for _, name := range img.Layers {
		d, err := m.addFile(name, dockerLayer, count)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		manifest.Layers = append(manifest.Layers, d)
	}
	text, err := json.Marshal(manifest)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := bundle.NewPart(bundle.DockerManifest, text).Descriptor
	m.documents[blobFile(d.Digest)] = text
	return d, nil
}

// blobFile returns the name of a blob's file. The digest must be valid.
func blobFile(d digest.Digest) string { return "blobs/" + d.Algorithm().String() + "/" + d.Encoded() }

// addFile adds a file of the archive as a blob, and returns the descriptor of the blob. It reads the file once, and also writes
// the bytes to count. The media type of a compressed layer gets the name of the compression as its suffix.
func (m *memory) addFile(name, mediaType string, count io.Writer) (ocispec.Descriptor, error) {
	name = path.Clean(name)
	r, size, err := m.Layout.Open(name)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer r.Close()
	magic := make([]byte, len(zstdMagic))
	n, err := io.ReadFull(r, magic)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return ocispec.Descriptor{}, err
	}
	sum := digest.SHA256.Digester()
	sum.Hash().Write(magic[:n])
	if _, err := io.Copy(io.MultiWriter(sum.Hash(), count), r); err != nil {
		return ocispec.Descriptor{}, err
	}
	if c := compression(string(magic[:n])); c != "" && mediaType == dockerLayer {
		mediaType += "." + c
	}
	m.files[blobFile(sum.Digest())] = name
	return ocispec.Descriptor{MediaType: mediaType, Digest: sum.Digest(), Size: size}, nil
}
