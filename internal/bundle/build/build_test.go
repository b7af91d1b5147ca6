package build_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/edge/inventory"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/build"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
)

// buildTar builds a source directory and returns the tar.
func buildTar(t testing.TB, dir string, change func(*build.Build)) ([]byte, *build.Build, error) {
	t.Helper()
	b := &build.Build{Dir: dir, Inventory: inventory.Read, TempDir: t.TempDir()}
	if change != nil {
		change(b)
	}
	a, err := b.Run(context.Background())
	var out bytes.Buffer
	if err == nil {
		err = a.WriteTar(&out)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(b.TempDir); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	return out.Bytes(), b, err
}

func openTarBytes(t testing.TB, data []byte) *bundle.Bundle {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bundle.tar")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := bundle.OpenLayout(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b, err := bundle.Open(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSameBytes checks that the bytes of a bundle depend only on the contents of the source directory: not on its path, on times and modes,
// nor on whether the images are in directories, tars or compressed tars.
func TestSameBytes(t *testing.T) {
	one := t.TempDir()
	bundletest.Source(t, one)
	first, _, err := buildTar(t, one, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "another/path")
	bundletest.Source(t, other)
	plain, err := os.ReadFile(filepath.Join(other, "images/db.tar"))
	if err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(plain)
	z.Close()
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"gzip": zipped.Bytes(), "zstd": encoder.EncodeAll(plain, nil)} {
		bundletest.Write(t, other, bundletest.File{Name: "images/db.tar", Data: data})
		for _, f := range []string{"bundle.yaml", "manifests/web.yaml", "images/db.tar"} {
			file := filepath.Join(other, f)
			if err := os.Chtimes(file, time.Time{}, time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if again, _, err := buildTar(t, other, nil); err != nil || !bytes.Equal(first, again) {
			t.Errorf("%s: other bytes (%d and %d), %v", name, len(first), len(again), err)
		}
	}
	b := openTarBytes(t, first)
	if err := b.Verify(context.Background(), func(int64, int64) {}); err != nil {
		t.Error(err)
	}
	if c := b.Contents; c.Number != 42 || c.Expires != "2027-01-31T00:00:00Z" || !slices.Equal(c.Platforms, []string{"linux/amd64", "linux/arm64"}) ||
		!slices.Equal(c.For.Names, []string{"a", "b"}) || len(c.Images) != 2 {
		t.Errorf("%+v", c)
	}
}

// TestDockerSave checks that a bundle has images of docker save, also those whose layers are compressed or linked.
func TestDockerSave(t *testing.T) {
	dir := t.TempDir()
	bundletest.Source(t, dir)
	if err := os.RemoveAll(filepath.Join(dir, "images/web")); err != nil {
		t.Fatal(err)
	}
	web := bundletest.Image{Name: "localhost/web:1", Platforms: []string{"linux/amd64"}, Layers: []string{"base", "web"}}
	bundletest.Write(t, dir, bundletest.File{Name: "images/web.tar", Data: bundletest.Tar(t, bundletest.Docker(t, web)...)},
		bundletest.File{Name: "bundle.yaml", Data: []byte(strings.Replace(bundletest.Description, "linux/arm64, ", "", 1))})
	data, _, err := buildTar(t, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := openTarBytes(t, data)
	if err := b.Verify(context.Background(), func(int64, int64) {}); err != nil {
		t.Error(err)
	}
	got := b.Contents.Images[1]
	if got.Name != "localhost/web:1" || got.Manifests[0].MediaType != bundle.DockerManifest || got.Digest != got.Manifests[0].Digest {
		t.Errorf("%+v", got)
	}
	// The layer "base" is in both images, and in the bundle once.
	if n := bytes.Count(data, []byte("base\x00")); n != 1 {
		t.Errorf("the shared layer is there %d times", n)
	}
}

func TestCommonPlatforms(t *testing.T) {
	dir := t.TempDir()
	bundletest.Source(t, dir)
	bundletest.Write(t, dir, bundletest.File{Name: "bundle.yaml", Data: []byte("apiVersion: islet.dev/v1alpha1\nkind: Bundle\nname: kiosk\n")},
		bundletest.File{Name: "images/db.tar", Data: bundletest.Tar(t, bundletest.OCI(t,
			bundletest.Image{Name: "localhost/db:1", Platforms: []string{"linux/arm64", "linux/arm/v7"}, Layers: []string{"db"}},
			bundletest.Image{Name: "localhost/unused:1", Platforms: []string{"linux/arm64"}, Layers: []string{"unused"}})...)})
	data, b, err := buildTar(t, dir, func(b *build.Build) { b.Number = 7 })
	if err != nil {
		t.Fatal(err)
	}
	if c := openTarBytes(t, data).Contents; c.Number != 7 || strings.Join(c.Platforms, " ") != "linux/arm64" || len(c.Images) != 2 {
		t.Errorf("%+v", c)
	}
	if len(b.Notes) != 1 || !strings.Contains(b.Notes[0], "localhost/unused:1") {
		t.Errorf("%q", b.Notes)
	}
}

// TestProgress checks that a build reports the bytes of archives that it decompresses or whose digests it computes, and that the end of the
// context ends the build and the write.
func TestProgress(t *testing.T) {
	dir := t.TempDir()
	bundletest.Source(t, dir)
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	db := bundletest.Image{Name: "localhost/db:1", Platforms: []string{"linux/amd64"}, Layers: []string{"base", "db"}}
	tar := bundletest.Tar(t, bundletest.Docker(t, db)...)
	bundletest.Write(t, dir, bundletest.File{Name: "images/db.tar", Data: encoder.EncodeAll(tar, nil)},
		bundletest.File{Name: "bundle.yaml", Data: []byte(strings.Replace(bundletest.Description, "linux/arm64, ", "", 1))})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	read := map[string]int64{}
	b := &build.Build{Dir: dir, Inventory: inventory.Read, TempDir: t.TempDir(),
		Progress: func(name string, done int64) { read[name] = done }}
	defer b.Close()
	a, err := b.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(read) != 1 || read["db.tar"] <= int64(len(tar)) { // the tar, and then its blobs
		t.Errorf("%v of a tar with %d bytes", read, len(tar))
	}
	var last, total int64
	a.Progress = func(done, all int64) error { last, total = done, all; return context.Cause(ctx) }
	out := filepath.Join(t.TempDir(), "out")
	for _, write := range []func() error{func() error { return a.WriteTar(io.Discard) }, func() error { return a.WriteDir(out) },
		func() error { return a.WriteDir(out) }} { // the second time, all blobs are there
		last, total = 0, 0
		if err := write(); err != nil || last != total || total < a.Contents.Size {
			t.Errorf("%d of %d: %v", last, total, err)
		}
	}
	cancel()
	if err := a.WriteTar(io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a tar is written after the end: %v", err)
	}
	if err := a.WriteDir(filepath.Join(t.TempDir(), "out")); !errors.Is(err, context.Canceled) {
		t.Errorf("a directory is written after the end: %v", err)
	}
	again := &build.Build{Dir: dir, Inventory: inventory.Read, TempDir: t.TempDir()}
	if _, err := again.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a bundle is built after the end: %v", err)
	}
	again.Close()
}

// TestAllMissing checks that one error names everything that is missing: objects, images, and platforms of images.
func TestAllMissing(t *testing.T) {
	dir := t.TempDir()
	bundletest.Source(t, dir)
	bundletest.Write(t, dir,
		bundletest.File{Name: "manifests/web.yaml", Data: []byte(strings.Split(bundletest.Pod, "---")[0])},
		bundletest.File{Name: "bundle.yaml", Data: []byte(strings.Replace(bundletest.Description, "linux/arm64", "linux/riscv64", 1))})
	if err := os.Remove(filepath.Join(dir, "images/db.tar")); err != nil {
		t.Fatal(err)
	}
	_, _, err := buildTar(t, dir, nil)
	for _, part := range []string{"ConfigMap default/settings", "image localhost/db:1: it is in no archive",
		"image localhost/web:1: it has no variant for linux/riscv64"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not contain %q", err, part)
		}
	}
}

// TestRefused checks that a build with a mistake fails, and that the error names it.
func TestRefused(t *testing.T) {
	file := func(name, text string) []bundletest.File { return []bundletest.File{{Name: name, Data: []byte(text)}} }
	image := func(name, layer string) []byte {
		return bundletest.Tar(t, bundletest.OCI(t, bundletest.Image{Name: name, Platforms: []string{"linux/amd64", "linux/arm64"}, Layers: []string{layer}})...)
	}
	describe := func(old, changed string) []bundletest.File {
		return file("bundle.yaml", strings.Replace(bundletest.Description, old, changed, 1))
	}
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: wifi}\nstringData: {a: b}\n"
	inner := []byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"nonsense","size":1}]}`)
	other := strings.NewReplacer("name: web", "name: x", "settings", "more").Replace(bundletest.Pod)
	index := bundle.NewPart(ocispec.MediaTypeImageIndex, inner).Descriptor
	index.Annotations = map[string]string{"io.containerd.image.name": "localhost/web:1"}
	bad := []bundletest.File{ // replaces the layout of localhost/web:1
		{Name: "images/web/blobs/sha256/" + index.Digest.Encoded(), Data: inner},
		{Name: "images/web/index.json", Data: bundletest.Marshal(t, ocispec.Index{Manifests: []ocispec.Descriptor{index}})},
	}
	for name, x := range map[string]struct {
		files []bundletest.File
		bad   string
	}{
		"no image":            {file("manifests/x.yaml", strings.NewReplacer("name: web", "name: x", "localhost/db:1", "localhost/x:1", "settings", "more").Replace(bundletest.Pod)), "image localhost/x:1: it is in no archive"},
		"another platform":    {describe("linux/arm64", "linux/riscv64"), "localhost/web:1: it has no variant for linux/riscv64, but for linux/amd64, linux/arm64"},
		"two different":       {[]bundletest.File{{Name: "images/x.tar", Data: image("localhost/web:1", "other")}}, "web and x.tar have different images"},
		"no ConfigMap":        {file("manifests/web.yaml", strings.Split(bundletest.Pod, "---")[0]), "ConfigMap default/settings, which pod default/web needs"},
		"a plain Secret":      {file("manifests/wifi.yaml", secret), "Secret default/wifi is readable"},
		"defined twice":       {file("manifests/again.yaml", bundletest.Pod), "Pod default/web"},
		"a wrong field":       {file("manifests/web.yaml", strings.Replace(bundletest.Pod, "envFrom", "envfrom", 1)), "envFrom"},
		"not a manifest":      {file("manifests/web.txt", ""), "a manifest ends with .yaml"},
		"a bad name":          {file("manifests/web page.yaml", other), "is not a file name"},
		"a bad beginning":     {file("manifests/_x.yaml", other), `"_x.yaml" is not a file name: 1 to 100 letters, digits, dots, dashes and underscores, which begin with a letter or digit`},
		"differ in case":      {file("manifests/WEB.yaml", other), "the names of the files WEB.yaml and web.yaml differ only in case"},
		"no number":           {describe("number: 42\n", ""), "number: it is missing"},
		"a bad number":        {describe("number: 42\n", "number: -1\n"), "number: -1"},
		"an unknown field":    {describe("number: 42\n", "number: 42\nnummer: 1\n"), "nummer"},
		"a bad bundle's name": {describe("kiosk", "Kiosk 1"), "name:"},
		"a wrong kind":        {describe("kind: Bundle", "kind: Pod"), "apiVersion and kind"},
		"no archive":          {file("images/x.tar", "nonsense"), "images/x.tar"},
		"a bad digest":        {file("images/x/index.json", `{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"nonsense","annotations":{"io.containerd.image.name":"localhost/web:1"}}]}`), "not a digest"},
		"a digest missing":    {file("images/x/index.json", `{"manifests":[{}]}`), "not a digest"},
		"a bad inner digest":  {bad, "not a digest"},
		"an unsigned islet":   {file("islet/islet-0.2.0-linux-arm64.tar.gz", "x"), "must be signed"},
		"a bad sealed file":   {file("manifests/x.sealed.yaml", secret), "x.sealed.yaml"},
	} {
		dir := t.TempDir()
		bundletest.Source(t, dir)
		bundletest.Write(t, dir, x.files...)
		if _, _, err := buildTar(t, dir, nil); err == nil || !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v, not %q", name, err, x.bad)
		}
	}
	dir := t.TempDir()
	bundletest.Source(t, dir)
	bundletest.Write(t, dir, file("manifests/wifi.yaml", secret)...)
	if _, _, err := buildTar(t, dir, func(b *build.Build) { b.PlainSecrets = true }); err != nil {
		t.Errorf("a plain Secret that is allowed: %v", err)
	}
}
