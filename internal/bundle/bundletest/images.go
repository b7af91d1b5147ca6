package bundletest

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
)

// An Image is an image that is written to an archive.
type Image struct {
	Name      string
	Platforms []string // one for docker save
	Layers    []string // each is the content of the one file of a layer. All platforms have the same layers
}

// A File is an entry of a tar.
type File struct {
	Name string
	Data []byte
}

// Tar returns a tar of files.
func Tar(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Name, Size: int64(len(f.Data)), Mode: 0o644})
		if err == nil {
			_, err = w.Write(f.Data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Marshal returns the JSON of a value.
func Marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// layers returns the layers of an image.
func (i *Image) layers(t testing.TB) (blobs [][]byte) {
	for _, text := range i.Layers {
		blobs = append(blobs, Tar(t, File{"file", []byte(text)}))
	}
	return blobs
}

// config returns the config of an image for a platform.
func config(t testing.TB, platform string, layers [][]byte) []byte {
	p, err := bundle.ParsePlatform(platform)
	if err != nil {
		t.Fatal(err)
	}
	c := ocispec.Image{Platform: *p, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{}}}
	for _, l := range layers {
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digest.FromBytes(l))
	}
	return Marshal(t, c)
}

// OCI returns the files of an OCI layout.
func OCI(t testing.TB, images ...Image) []File {
	t.Helper()
	files := map[string][]byte{}
	add := func(mediaType string, data []byte) ocispec.Descriptor {
		d := bundle.NewPart(mediaType, data).Descriptor
		files["blobs/sha256/"+d.Digest.Encoded()] = data
		return d
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for _, img := range images {
		inner := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
		for _, platform := range img.Platforms {
			layers := img.layers(t)
			m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
				Config: add(ocispec.MediaTypeImageConfig, config(t, platform, layers))}
			for _, l := range layers {
				m.Layers = append(m.Layers, add(ocispec.MediaTypeImageLayer, l))
			}
			inner.Manifests = append(inner.Manifests, add(ocispec.MediaTypeImageManifest, Marshal(t, m)))
		}
		d := inner.Manifests[0]
		if len(inner.Manifests) > 1 {
			d = add(ocispec.MediaTypeImageIndex, Marshal(t, inner))
		}
		d.Annotations = map[string]string{"io.containerd.image.name": img.Name}
		index.Manifests = append(index.Manifests, d)
	}
	files[ocispec.ImageIndexFile] = Marshal(t, index)
	files[ocispec.ImageLayoutFile] = Marshal(t, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	return sorted(files)
}

// Docker returns the files of an archive of docker save.
func Docker(t testing.TB, images ...Image) []File {
	t.Helper()
	files := map[string][]byte{}
	type entry struct {
		Config           string
		RepoTags, Layers []string
	}
	var list []entry
	for _, img := range images {
		layers := img.layers(t)
		c := config(t, img.Platforms[0], layers)
		e := entry{digest.FromBytes(c).Encoded() + ".json", []string{img.Name}, nil}
		files[e.Config] = c
		for _, l := range layers {
			name := digest.FromBytes(l).Encoded() + "/layer.tar"
			files[name] = l
			e.Layers = append(e.Layers, name)
		}
		list = append(list, e)
	}
	files["manifest.json"] = Marshal(t, list)
	return sorted(files)
}

func sorted(files map[string][]byte) (out []File) {
	for name, data := range files {
		out = append(out, File{name, data})
	}
	slices.SortFunc(out, func(a, b File) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return out
}

// Write writes files below dir.
func Write(t testing.TB, dir string, files ...File) {
	t.Helper()
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Pod is the manifest of a pod with the images web:1 and db:1, and of a ConfigMap that it uses.
const Pod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: "localhost/web:1", envFrom: [{configMapRef: {name: settings}}]}
  - {name: db, image: "localhost/db:1"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: x}
`

// Description is a bundle.yaml.
const Description = `apiVersion: islet.dev/v1alpha1
kind: Bundle
name: kiosk
number: 42
platforms: [linux/arm64, linux/amd64]
for: {names: [b, a], labels: {site: x}}
expires: 2027-01-31T00:00:00Z
`

// Source writes a source directory with the pod of Pod. Its images are in an OCI layout and in a tar of a layout.
func Source(t testing.TB, dir string) {
	t.Helper()
	both := []string{"linux/amd64", "linux/arm64"}
	Write(t, filepath.Join(dir, "images/web"), OCI(t, Image{"localhost/web:1", both, []string{"base", "web"}})...)
	Write(t, dir, File{"bundle.yaml", []byte(Description)}, File{"manifests/web.yaml", []byte(Pod)},
		File{"images/db.tar", Tar(t, OCI(t, Image{"localhost/db:1", both, []string{"base", "db"}})...)})
}
