package image

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/runtime/cri"
)

// hostBundle returns an open layout with one image for this host and one for another, and the image as contents.json describes it.
func hostBundle(t *testing.T, change func(dir string, layers []digest.Digest)) (bundle.Layout, bundle.Image) {
	t.Helper()
	dir := t.TempDir()
	host := "linux/" + runtime.GOARCH
	layers := []string{"base", strings.Repeat("web", 1000)}
	out := bundle.Image{Name: "localhost/web:1"}
	for _, platform := range []string{host, "linux/s390x"} {
		files := bundletest.OCI(t, bundletest.Image{Name: out.Name, Platforms: []string{platform}, Layers: layers})
		bundletest.Write(t, dir, files...)
		for _, f := range files {
			text := string(f.Data)
			if strings.Contains(text, `"config":{`) && strings.Contains(text, `"layers":[`) { // the manifest
				out.Manifests = append(out.Manifests, bundle.ImageManifest{Platform: platform,
					MediaType: "application/vnd.oci.image.manifest.v1+json", Digest: digest.FromBytes(f.Data), Size: int64(len(f.Data))})
			}
		}
	}
	out.Digest = out.Manifests[0].Digest
	if change != nil {
		l, err := bundle.OpenLayout(dir)
		if err != nil {
			t.Fatal(err)
		}
		p, err := bundle.ReadImage(l, descriptorOf(out.Manifests[0]))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		change(dir, []digest.Digest{p.Layers[0].Digest, p.Layers[1].Digest})
	}
	l, err := bundle.OpenLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, out
}

// bundleOf returns a layout with an image.
func bundleOf(t *testing.T, img v1.Image) (bundle.Layout, BundleImage) {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = p.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	m, err := partial.Descriptor(img)
	if err != nil {
		t.Fatal(err)
	}
	l, err := bundle.OpenLayout(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d := digest.Digest(m.Digest.String())
	return l, BundleImage{Name: "localhost/web@" + d.String(), Manifest: ocispec.Descriptor{MediaType: string(m.MediaType), Digest: d, Size: m.Size}}
}

// TestBundleImport imports the image of a bundle: it is found by its digest only, its layers are not fetched again, and it cannot be
// removed while it is pinned.
func TestBundleImport(t *testing.T) {
	s := newService(t, nil)
	l, img := hostBundle(t, nil)
	chosen, err := s.ChooseBundleImage(img)
	if err != nil {
		t.Fatal(err)
	}
	if want := "localhost/web@" + img.Manifests[0].Digest.String(); chosen.Name != want {
		t.Errorf("name %q, want %q", chosen.Name, want)
	}
	missing := func(want bool) {
		t.Helper()
		if n, err := s.MissingBytes(t.Context(), l, chosen); err != nil || (n > 3000) != want || !want && n != 0 {
			t.Errorf("%d bytes are missing, %v", n, err)
		}
	}
	missing(true)
	s.PinImages([]string{chosen.Name}) // before the import, so that the image is never unprotected
	for range 2 {                      // an import may be repeated
		if err := s.ImportBundleImage(t.Context(), l, chosen, func(cri.ImportProgress) {}); err != nil {
			t.Fatal(err)
		}
	}
	missing(false)
	if got := left(t, s); count(got, "lease ")+count(got, "download ") > 0 || count(got, "blob ") != 2 {
		t.Errorf("left over: %q", got)
	}
	wantFiles(t, s, chosen.Name, map[string]string{"file": strings.Repeat("web", 1000)})
	status := func(ref string) *api.Image {
		t.Helper()
		r, err := s.ImageStatus(t.Context(), &api.ImageStatusRequest{Image: &api.ImageSpec{Image: ref}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Image
	}
	if status("localhost/web:1") != nil {
		t.Error("the image has a tag")
	}
	found := status(chosen.Name)
	if found == nil || !found.Pinned {
		t.Fatalf("not found, or not pinned: %v", found)
	}
	for _, ref := range []string{chosen.Name, found.Id} {
		if _, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: ref}}); !errdefs.IsFailedPrecondition(err) ||
			!strings.Contains(err.Error(), "islet bundle status") || strings.Contains(err.Error(), "failed precondition") {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if err := s.Untag(t.Context(), chosen.Name); !errdefs.IsFailedPrecondition(err) {
		t.Error(err)
	}
	// The same image gets a tag from an archive. Only the tag can be removed.
	tagged := bundletest.Tar(t, bundletest.OCI(t, bundletest.Image{Name: "localhost/other:1", Platforms: []string{"linux/" + runtime.GOARCH},
		Layers: []string{"base", strings.Repeat("web", 1000)}})...)
	if _, err := s.ImportArchive(t.Context(), strings.NewReader(string(tagged)), "other.tar", nil); err != nil {
		t.Fatal(err)
	}
	if got := status(found.Id); !slices.Equal(got.RepoTags, []string{"localhost/other:1"}) {
		t.Fatalf("tags %q", got.RepoTags)
	}
	if err := s.Untag(t.Context(), "localhost/other:1"); err != nil || status("localhost/other:1") != nil || status(chosen.Name) == nil {
		t.Errorf("untag: %v", err)
	}
	s.PinImages(nil)
	if _, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: chosen.Name}}); err != nil {
		t.Error(err)
	}
	if got := left(t, s); len(got) > 0 {
		t.Errorf("left over after the removal: %q", got)
	}
}

// TestBundleImportRefused checks that a layer with other bytes, a missing layer, and an image without a variant for this host are errors,
// and that nothing is left.
func TestBundleImportRefused(t *testing.T) {
	s := newService(t, nil)
	blob := func(dir string, d digest.Digest) string { return filepath.Join(dir, "blobs/sha256", d.Encoded()) }
	for name, c := range map[string]struct {
		change func(dir string, layers []digest.Digest)
		want   string
	}{
		"other bytes": {func(dir string, layers []digest.Digest) {
			data := readAll(t, blob(dir, layers[1]))
			bundletest.Write(t, dir, bundletest.File{Name: "blobs/sha256/" + layers[1].Encoded(),
				Data: []byte(strings.Replace(data, "webweb", "webWEB", 1))})
		}, "its digest is"},
		"another size": {func(dir string, layers []digest.Digest) {
			bundletest.Write(t, dir, bundletest.File{Name: "blobs/sha256/" + layers[1].Encoded(), Data: []byte("x")})
		}, "bytes instead of"},
	} {
		l, img := hostBundle(t, c.change)
		chosen, err := s.ChooseBundleImage(img)
		if err != nil {
			t.Fatal(err)
		}
		err = s.ImportBundleImage(t.Context(), l, chosen, func(cri.ImportProgress) {})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if got := left(t, s); len(got) > 0 {
			t.Errorf("%s: left over: %q", name, got)
		}
	}
	_, img := hostBundle(t, nil)
	img.Manifests = img.Manifests[1:]
	if _, err := s.ChooseBundleImage(img); err == nil || !strings.Contains(err.Error(), "linux/s390x") {
		t.Error(err)
	}
}

func readAll(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func descriptorOf(m bundle.ImageManifest) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: m.MediaType, Digest: m.Digest, Size: m.Size}
}

// TestBundleMediumFaults imports the image of a bundle from a stick that is pulled out, or answers differently, at each file. Nothing is
// left of a failed import, and the next one succeeds.
func TestBundleMediumFaults(t *testing.T) {
	s := newService(t, nil)
	l, img := hostBundle(t, nil)
	chosen, err := s.ChooseBundleImage(img)
	if err != nil {
		t.Fatal(err)
	}
	for _, lie := range []bool{false, true} {
		for at := 0; ; at++ {
			f := &bundletest.Faulty{Layout: l, At: at, Lie: lie}
			_, err := s.MissingBytes(t.Context(), f, chosen)
			if err == nil {
				err = s.ImportBundleImage(t.Context(), f, chosen, func(cri.ImportProgress) {})
			}
			if f.Opens <= at { // without a fault
				if err != nil || at < 5 {
					t.Errorf("lie %v: %v after %d files", lie, err, at)
				}
				break
			}
			if err == nil || errors.Is(err, syscall.EIO) == lie {
				t.Errorf("lie %v, file %d: %v", lie, at, err)
			}
			if got := left(t, s); len(got) > 0 {
				t.Errorf("lie %v, file %d: left over: %q", lie, at, got)
			}
		}
		wantFiles(t, s, chosen.Name, map[string]string{"file": strings.Repeat("web", 1000)})
		if _, err := s.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: chosen.Name}}); err != nil {
			t.Fatal(err)
		}
	}
}
