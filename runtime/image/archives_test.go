package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/klauspost/compress/zstd"
)

// A file is an entry of a layer or of an archive.
type file struct {
	name, body string
	link       string
	typ        byte
}

func tarOf(tb testing.TB, files ...file) []byte {
	tb.Helper()
	var b bytes.Buffer
	size := 0
	for _, f := range files {
		size += len(f.body) + 2<<10
	}
	b.Grow(size)
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.body)), Linkname: f.link, Typeflag: f.typ}
		if f.typ == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, f.body); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func layerOf(tb testing.TB, files ...file) v1.Layer {
	tb.Helper()
	b := tarOf(tb, files...)
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil },
		tarball.WithCompressedCaching) // the layer is read several times
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// noise returns n incompressible bytes, which are always the same for a seed.
func noise(seed uint64, n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return string(b)
}

// imageOf returns an image with the given layers for the host's platform.
func imageOf(tb testing.TB, user string, layers ...v1.Layer) v1.Image {
	tb.Helper()
	return imageFor(tb, runtime.GOARCH, user, layers...)
}

func imageFor(tb testing.TB, arch, user string, layers ...v1.Layer) v1.Image {
	tb.Helper()
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		tb.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		tb.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", arch
	cf.Config.User = user
	cf.Config.Cmd = []string{"/hello"}
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		tb.Fatal(err)
	}
	return img
}

// small returns an image with two layers. The second layer deletes a file of the first one.
func small(tb testing.TB) v1.Image {
	tb.Helper()
	return imageOf(tb, "1000:100",
		layerOf(tb, file{name: "hello", body: "hello\n"}, file{name: "gone", body: "x"}, file{name: "big", body: noise(1, 600<<10)}),
		layerOf(tb, file{name: ".wh.gone"}, file{name: "etc/motd", body: "welcome"}))
}

func imageID(tb testing.TB, img v1.Image) string {
	tb.Helper()
	h, err := img.ConfigName()
	if err != nil {
		tb.Fatal(err)
	}
	return h.String()
}

func dockerArchive(tb testing.TB, images map[string]v1.Image) []byte {
	tb.Helper()
	refs := map[name.Reference]v1.Image{}
	for s, img := range images {
		ref, err := name.ParseReference(s)
		if err != nil {
			tb.Fatal(err)
		}
		refs[ref] = img
	}
	var b bytes.Buffer
	if err := tarball.MultiRefWrite(refs, &b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// ociArchive returns an archive of an OCI layout. The given function adds the images.
func ociArchive(tb testing.TB, add func(layout.Path) error) []byte {
	tb.Helper()
	dir := tb.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		tb.Fatal(err)
	}
	if err := add(p); err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func named1(s string) layout.Option {
	return layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": s})
}

func gzipped(tb testing.TB, b []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

func zstded(tb testing.TB, b []byte) []byte {
	tb.Helper()
	e, err := zstd.NewWriter(nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(b, nil)
}

func writeFile(tb testing.TB, path string, b []byte) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		tb.Fatal(err)
	}
}
