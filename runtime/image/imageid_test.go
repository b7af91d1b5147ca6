package image

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	containerd "github.com/containerd/containerd/v2/core/images/archive"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestArchiveImageID checks an imported image with uncompressed layers, as docker save writes them. It has the same ID and repo digests as
// with containerd.
func TestArchiveImageID(t *testing.T) {
	plain := tarOf(t, file{name: "a", body: "b"})
	img := imageOf(t, "", layerOf(t, file{name: "a", body: "b"}))
	for name, data := range map[string][]byte{
		"docker": archiveWith(t, plain, plain),
		"OCI":    ociArchive(t, func(p layout.Path) error { return p.AppendImage(img, named1("docker.io/library/layer:1")) }),
	} {
		s := newService(t, nil)
		if _, err := s.ImportArchive(t.Context(), bytes.NewReader(data), name, nil); err != nil {
			t.Fatal(err)
		}
		st, err := s.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: &api.ImageSpec{Image: "layer:1"}})
		if err != nil || st.Image == nil {
			t.Fatalf("%s: %v, %v", name, st, err)
		}
		ctx, done, err := s.withLease(withNamespace(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		index, err := containerd.ImportIndex(ctx, s.c.Client.ContentStore(), bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		b, err := readStored(ctx, s.c.Client.ContentStore(), index)
		if err != nil {
			t.Fatal(err)
		}
		var list ocispec.Index
		if err := json.Unmarshal(b, &list); err != nil || len(list.Manifests) != 1 {
			t.Fatalf("%s: %s, %v", name, b, err)
		}
		if want := "docker.io/library/layer@" + list.Manifests[0].Digest.String(); !slices.Contains(st.Image.RepoDigests, want) {
			t.Errorf("%s: repo digests %q, containerd has %s", name, st.Image.RepoDigests, want)
		}
		b, err = readStored(ctx, s.c.Client.ContentStore(), list.Manifests[0])
		if err != nil {
			t.Fatal(err)
		}
		var m ocispec.Manifest
		if err := json.Unmarshal(b, &m); err != nil || st.Image.Id != m.Config.Digest.String() {
			t.Errorf("%s: ID %s, containerd has %s (%v)", name, st.Image.Id, m.Config.Digest, err)
		}
	}
}
