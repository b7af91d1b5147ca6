package image

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imports imports data as an archive and checks the result. If the import fails, no data is left. If it succeeds, the image can be
// inspected and removed, and no data is left after the removal.
func imports(t *testing.T, s *Service, data []byte) {
	t.Helper()
	refs, err := s.ImportArchive(t.Context(), bytes.NewReader(data), "fuzz", nil)
	if err == nil && len(refs) == 0 {
		t.Fatal("neither images nor an error")
	}
	for _, ref := range refs {
		spec := &api.ImageSpec{Image: ref}
		if st, err := s.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: spec, Verbose: true}); err != nil || st.Image == nil {
			t.Fatalf("status of %s: %v, %v", ref, st, err)
		}
	}
	for _, ref := range refs {
		if _, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: ref}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := left(t, s); len(got) > 0 {
		t.Fatalf("left over: %q", got)
	}
}

func fuzzService(f *testing.F) *Service {
	dir := onSmallDisk(f, 4*reservedSpace) // the file system is in memory, because a disk would be slow
	return serviceOn(f, newDaemon(f, dir), dir, func(c *Config) { c.Log = slog.New(slog.DiscardHandler) })
}

// FuzzImport imports arbitrary bytes.
func FuzzImport(f *testing.F) {
	img := imageOf(f, "", layerOf(f, file{name: "a", body: "a"}))
	docker := dockerArchive(f, map[string]v1.Image{"demo:1": img})
	oci := ociArchive(f, func(p layout.Path) error { return p.AppendImage(img, named1("demo:1")) })
	for _, b := range [][]byte{nil, docker, oci, gzipped(f, docker), zstded(f, oci), gzipped(f, gzipped(f, nil)), docker[:len(docker)/2]} {
		f.Add(b)
	}
	s := fuzzService(f)
	f.Fuzz(func(t *testing.T, data []byte) { imports(t, s, data) })
}

// FuzzImportParts imports an archive whose index, manifest, config and layer are arbitrary bytes. The index refers to the manifest, so that
// each part is read.
func FuzzImportParts(f *testing.F) {
	layer := tarOf(f, file{name: "a", body: "a"}, file{name: ".wh.b"})
	config := toJSON(f, ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	})
	docker := toJSON(f, []dockerImage{{Config: "config", RepoTags: []string{"demo:1"}, Layers: []string{"layer"}}})
	manifest := toJSON(f, map[string]any{
		"schemaVersion": 2,
		"config":        ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromString(config), Size: int64(len(config))},
		"layers":        []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageLayer, Digest: digest.FromBytes(layer), Size: int64(len(layer))}},
	})
	index := toJSON(f, ocispec.Index{Manifests: []ocispec.Descriptor{{
		MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(manifest), Size: int64(len(manifest)),
		Annotations: map[string]string{ocispec.AnnotationRefName: "demo:1"},
	}}})
	f.Add(docker, "", "", config, layer)
	f.Add("", index, manifest, config, layer)
	f.Add("", index, index, config, gzipped(f, layer))
	f.Add(docker, "", "", config, zstded(f, layer))
	s := fuzzService(f)
	f.Fuzz(func(t *testing.T, docker, index, manifest, config string, layer []byte) {
		files := []file{{name: "config", body: config}, {name: "layer", body: string(layer)}, {name: "manifest", body: manifest}}
		if docker != "" {
			files = append(files, file{name: "manifest.json", body: docker})
		}
		if index != "" {
			files = append(files, file{name: "index.json", body: relink(index, manifest)})
		}
		imports(t, s, tarOf(t, files...))
	})
}

// relink changes an index so that its first entry refers to the given manifest. It returns the index.
func relink(index, manifest string) string {
	var x ocispec.Index
	if json.Unmarshal([]byte(index), &x) != nil || len(x.Manifests) == 0 {
		return index
	}
	x.Manifests[0].Digest, x.Manifests[0].Size = digest.FromString(manifest), int64(len(manifest))
	b, err := json.Marshal(x)
	if err != nil {
		return index
	}
	return string(b)
}
