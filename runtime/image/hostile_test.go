package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

func toJSON(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// TestImportHostile checks that the import of an invalid archive returns the right error. It leaves no data and does not write to the host.
func TestImportHostile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside")
	config := toJSON(t, ocispec.Image{Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH}})
	layered := toJSON(t, ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromString("layer")}},
	})
	docker := func(layers ...string) string {
		return toJSON(t, []dockerImage{{Config: "config.json", RepoTags: []string{"xx:1"}, Layers: layers}})
	}
	good := dockerArchive(t, map[string]v1.Image{"xx:1": small(t)})
	loop := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	for range 200 {
		loop.Manifests = append(loop.Manifests, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex})
	}
	many := []file{}
	for i := range maxEntries + 1 {
		many = append(many, file{name: fmt.Sprint(i)})
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":             {nil, "neither index.json"},
		"noise":             {[]byte(noise(1, 4096)), "not a tar archive"},
		"gzip in gzip":      {gzipped(t, gzipped(t, good)), "compressed twice, with gzip"},
		"zstd in gzip":      {gzipped(t, zstded(t, good)), "compressed twice, with zstd"},
		"xz":                {[]byte("\xfd7zXZ\x00 and so on"), "compressed with xz"},
		"no manifest":       {tarOf(t, file{name: "a", body: "b"}), "neither index.json"},
		"no JSON":           {tarOf(t, file{name: "manifest.json", body: "{"}), "manifest.json"},
		"missing config":    {tarOf(t, file{name: "manifest.json", body: docker()}), `"config.json" is not in the archive`},
		"missing layer":     {tarOf(t, file{name: "manifest.json", body: docker("a.tar")}, file{name: "config.json", body: layered}), `"a.tar" is not in the archive`},
		"layer count":       {tarOf(t, file{name: "manifest.json", body: docker("a.tar")}, file{name: "config.json", body: config}, file{name: "a.tar", body: string(tarOf(t))}), "1 layers for 0 entries"},
		"links in a circle": {tarOf(t, file{name: "manifest.json", body: docker("a")}, file{name: "config.json", body: layered}, file{name: "a", link: "b", typ: tar.TypeSymlink}, file{name: "b", link: "a", typ: tar.TypeSymlink}), `"a" is not in the archive`},
		"outer path":        {tarOf(t, file{name: "../../etc/passwd", body: "x"}, file{name: "manifest.json", body: docker("/etc/passwd")}, file{name: "config.json", body: layered}), "is not in the archive"},
		"wrong layer":       {swapLayers(t, good), "its digest is"},
		"too many files":    {tarOf(t, many...), "more than 16384 files"},
		"index of itself":   {ociOf(t, toJSON(t, loop)), "digest"},
		"bad digest":        {tarOf(t, file{name: "index.json", body: `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"sha256:../../x","size":3}]}`}), "digest"},
		"huge claim":        {tarOf(t, file{name: "index.json", body: `{"manifests":[{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"` + digest.FromString("x").String() + `","size":9223372036854775807}]}`}), "more than the"},
		"goes on":           {append(bytes.Clone(good), make([]byte, 2*maxPadding)...), "has data after its end"},
		"evil layer":        {dockerArchive(t, map[string]v1.Image{"xx:1": imageOf(t, "", layerOf(t, file{name: "l", link: filepath.Dir(outside), typ: tar.TypeSymlink}, file{name: "l/outside", body: "x"}), layerOf(t, file{name: "../../../../../../" + outside, body: "x"}))}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, imp := range importers {
				s := newService(t, nil)
				_, err := imp(t, s, c.data)
				if _, err := os.Lstat(outside); err == nil {
					t.Error("the import has written outside of its directory")
				}
				if c.want == "" {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if !errdefs.IsInvalidArgument(err) && !errdefs.IsNotFound(err) {
					t.Errorf("error without a kind: %v", err)
				}
				if got := left(t, s); len(got) > 0 {
					t.Errorf("left over: %q", got)
				}
			}
		})
	}
}

// This map contains the functions with which a test imports an archive.
var importers = map[string]func(testing.TB, *Service, []byte) ([]string, error){
	"stream": func(tb testing.TB, s *Service, data []byte) ([]string, error) {
		return s.ImportArchive(tb.Context(), bytes.NewReader(data), "stream", nil)
	},
	"file": func(tb testing.TB, s *Service, data []byte) ([]string, error) {
		path := filepath.Join(tb.TempDir(), "file")
		writeFile(tb, path, data)
		f, err := os.Open(path)
		if err != nil {
			tb.Fatal(err)
		}
		defer f.Close()
		return s.importFile(tb.Context(), f, func(digest.Digest) (bool, imageFilter, error) { return false, nil, nil }, func(cri.ImportProgress) {})
	},
}

// swapLayers exchanges the contents of two layers in an archive.
func swapLayers(t *testing.T, b []byte) []byte {
	t.Helper()
	var files []file
	var layers []int
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(h.Name, ".tar.gz") {
			layers = append(layers, len(files))
		}
		files = append(files, file{name: h.Name, body: string(body)})
	}
	i, j := layers[0], layers[1]
	files[i].body, files[j].body = files[j].body, files[i].body
	return tarOf(t, files...)
}

// ociOf returns an archive of an OCI layout. Its index refers to one blob.
func ociOf(t *testing.T, blob string) []byte {
	t.Helper()
	d := digest.FromString(blob)
	index := ocispec.Index{Manifests: []ocispec.Descriptor{{MediaType: ocispec.MediaTypeImageIndex, Digest: d, Size: int64(len(blob))}}}
	return tarOf(t, file{name: "blobs/sha256/" + d.Encoded(), body: blob}, file{name: "index.json", body: toJSON(t, index)})
}

// TestDiskFull checks that an image is rejected on a nearly full disk. No part of it is kept. When the disk has free space again, images
// are accepted.
func TestDiskFull(t *testing.T) {
	dir := onSmallDisk(t, reservedSpace+10<<20)
	s := serviceOn(t, newDaemon(t, dir), dir, nil)
	bomb := bombLayer(t, 32<<20)
	big := imageOf(t, "", layerOf(t, file{name: "data", body: noise(4, 6<<20)}), layerOf(t, file{name: "more", body: noise(5, 6<<20)}))
	for name, data := range map[string][]byte{
		"big":  dockerArchive(t, map[string]v1.Image{"big:1": big}),
		"bomb": bomb,
	} {
		_, err := s.ImportArchive(t.Context(), bytes.NewReader(data), name, nil)
		if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("%s: %v", name, err)
		}
		if got := left(t, s); len(got) > 0 {
			t.Fatalf("%s: left over: %q", name, got)
		}
	}
	l, img := bundleOf(t, imageOf(t, "", layerOf(t, file{name: "data", body: noise(6, 24<<20)})))
	if err := s.ImportBundleImage(t.Context(), l, img, func(cri.ImportProgress) {}); !errors.Is(err, syscall.ENOSPC) ||
		!strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), img.Name) {
		t.Fatalf("the image of a bundle: %v", err)
	}
	if got := left(t, s); len(got) > 0 {
		t.Fatalf("the image of a bundle: left over: %q", got)
	}
	ok := ociArchive(t, func(p layout.Path) error { return p.AppendImage(small(t), named1("demo:1")) })
	if _, err := s.ImportArchive(t.Context(), bytes.NewReader(ok), "ok", nil); err != nil {
		t.Fatal(err)
	}
	l, img = bundleOf(t, imageOf(t, "", layerOf(t, file{name: "data", body: noise(4, 6<<20)})))
	if err := s.ImportBundleImage(t.Context(), l, img, func(cri.ImportProgress) {}); err != nil {
		t.Errorf("a smaller image of a bundle: %v", err)
	}
}

// TestHiddenBombs checks layers that need much more disk space than the size of their stream. They are rejected before the disk is full.
func TestHiddenBombs(t *testing.T) {
	for name, tt := range map[string]struct {
		options string
		layer   []byte
		want    string
	}{
		"a sparse file":         {"", sparse("hole", 1<<40), "is full"},
		"some sparse files":     {"", slices.Concat(sparse("a", 7<<20), sparse("b", 7<<20), sparse("c", 7<<20), sparse("d", 7<<20), sparse("e", 7<<20)), "is full"},
		"empty files":           {",nr_inodes=2000", emptyFiles(t, 3000, ""), "no more files"},
		"directories in a name": {",nr_inodes=2000", emptyFiles(t, 20, strings.Repeat("d/", 200)), "no more files"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := onSmallDiskWith(t, fmt.Sprintf("size=%d%s", reservedSpace+16<<20, tt.options))
			s := serviceOn(t, newDaemon(t, dir), dir, nil)
			before := free(t, dir)
			var plain bytes.Buffer
			plain.Write(tt.layer)
			plain.Write(make([]byte, 1024))
			_, err := s.ImportArchive(t.Context(), bytes.NewReader(archiveOf(t, plain.Bytes())), "bomb", nil)
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("%v", err)
			}
			if got := left(t, s); len(got) > 0 {
				t.Errorf("left over: %q", got)
			}
			if after := free(t, dir); before.bytes-after.bytes > 15<<20 || after.inodes < 100 && tt.options != "" {
				t.Errorf("free %+v, then %+v", before, after)
			}
			ok := ociArchive(t, func(p layout.Path) error { return p.AppendImage(small(t), named1("demo:1")) })
			if _, err := s.ImportArchive(t.Context(), bytes.NewReader(ok), "ok", nil); err != nil {
				t.Fatal(err)
			}
		})
	}
}

type freeSpace struct{ bytes, inodes int64 }

func free(t *testing.T, dir string) freeSpace {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return freeSpace{int64(st.Bavail) * int64(st.Bsize), int64(st.Ffree)}
}

// sparse returns a tar entry for a file that consists of one hole. The entry has the PAX format of GNU tar.
func sparse(name string, size int64) []byte {
	block := func(name string, kind byte, data string) []byte {
		h := make([]byte, 512, 1536)
		copy(h, name)
		for at, n := range map[int]int{100: 0o644, 108: 0, 116: 0, 124: len(data), 136: 0} {
			copy(h[at:], fmt.Sprintf("%07o\x00", n))
		}
		copy(h[148:], "        ")
		h[156] = kind
		copy(h[257:], "ustar\x0000")
		sum := 0
		for _, b := range h {
			sum += int(b)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		return append(append(h, data...), make([]byte, (512-len(data)%512)%512)...)
	}
	var records string
	for _, kv := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=" + name, fmt.Sprint("GNU.sparse.realsize=", size)} {
		n := len(kv) + 4 // the length includes its own two digits
		records += fmt.Sprintf("%d %s\n", n, kv)
	}
	hole := fmt.Sprintf("1\n%d\n0\n", size) // a fragment with no bytes at the end of the file
	hole += strings.Repeat("\x00", 512-len(hole))
	return slices.Concat(block("x", 'x', records), block(name, '0', hole))
}

func emptyFiles(t *testing.T, n int, below string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d/%sx", i, below), Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// bombLayer returns an archive with a layer that is small until it is unpacked.
func bombLayer(t *testing.T, size int64) []byte {
	t.Helper()
	var plain bytes.Buffer
	plain.Grow(int(size) + 4<<10)
	w := tar.NewWriter(&plain)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Size: size, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archiveOf(t, plain.Bytes())
}

// archiveOf returns an archive of an image with one layer.
func archiveOf(t *testing.T, plain []byte) []byte {
	t.Helper()
	var layer bytes.Buffer
	sum := digest.Canonical.Digester()
	sum.Hash().Write(plain)
	z := gzip.NewWriter(&layer)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	config := ocispec.Image{
		Platform: ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH},
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{sum.Digest()}},
	}
	return tarOf(t,
		file{name: "manifest.json", body: toJSON(t, []dockerImage{{Config: "config.json", RepoTags: []string{"bomb:1"}, Layers: []string{"l"}}})},
		file{name: "config.json", body: toJSON(t, config)},
		file{name: "l", body: layer.String()})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
