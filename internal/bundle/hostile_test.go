package bundle_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
)

// TestHostileTars checks that a tar with links, sparse files, duplicates, a wrong end or too many entries is not a layout, and that nothing
// in proportion to what it claims is allocated.
func TestHostileTars(t *testing.T) {
	write := func(headers ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		return b.Bytes()
	}
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	many := make([]tar.Header, bundle.MaxBlobs+11)
	for i := range many {
		many[i] = file(fmt.Sprintf("%d", i))
	}
	sparse := bytes.Replace(write(tar.Header{Typeflag: tar.TypeReg, Name: "a", PAXRecords: map[string]string{"ISLET.sparse": "x"}}),
		[]byte("ISLET.sparse=x"), []byte("GNU.sparse.x=1"), 1)
	for name, data := range map[string][]byte{
		"symbolic link":   write(tar.Header{Typeflag: tar.TypeSymlink, Name: "index.json", Linkname: "/etc/passwd"}),
		"hard link":       write(file("a"), tar.Header{Typeflag: tar.TypeLink, Name: "index.json", Linkname: "a"}),
		"device":          write(tar.Header{Typeflag: tar.TypeBlock, Name: "index.json"}),
		"FIFO":            write(tar.Header{Typeflag: tar.TypeFifo, Name: "index.json"}),
		"twice":           write(file("index.json"), file("./index.json")),
		"sparse":          sparse,
		"too many":        write(many...),
		"a long name":     write(file(strings.Repeat("a", 1<<19))),
		"a longer name":   write(file(strings.Repeat("a", 101))),
		"a long link":     write(tar.Header{Typeflag: tar.TypeReg, Name: "a", Linkname: strings.Repeat("a", 101)}),
		"a terabyte":      write(tar.Header{Typeflag: tar.TypeReg, Name: "index.json", Size: 1 << 40, Format: tar.FormatGNU}),
		"no tar":          []byte(strings.Repeat("nonsense", 1000)),
		"a cut-off entry": bundletest.Tar(t, bundletest.File{Name: "index.json", Data: make([]byte, 5000)})[:3000],
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		l, err := openTar(t, data)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s is a layout", name)
			l.Close()
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > maxMemory {
			t.Errorf("%s: %d MiB were allocated", name, n>>20)
		}
	}
}

// TestHostileImageTars checks that the names and links of a tar with images may be long, but not of any length.
func TestHostileImageTars(t *testing.T) {
	for _, x := range []struct {
		header tar.Header
		ok     bool
	}{
		{tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("a", 4096)}, true},
		{tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("a", 4097)}, false},
		{tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: strings.Repeat("a", 4096)}, true},
		{tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: strings.Repeat("a", 4097)}, false},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		file := filepath.Join(t.TempDir(), "tar")
		if err := errors.Join(w.WriteHeader(&x.header), w.Close(), os.WriteFile(file, b.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := bundle.NewImageTar(f); (err == nil) != x.ok {
			t.Errorf("a name of %d bytes, a link of %d: %v", len(x.header.Name), len(x.header.Linkname), err)
		}
	}
}

// tarWithBlobs returns a signed bundle as a tar, and the blobs that its contents manifest reaches.
func tarWithBlobs(t *testing.T) ([]byte, []ocispec.Descriptor) {
	t.Helper()
	data := signedTar(t, newKey(t))
	l, err := openTar(t, data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b, err := bundle.Open(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := b.Blobs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return data, blobs
}

// TestLargestTar checks that a reader accepts a tar with the most blobs that Assemble allows, also after another program has added
// entries for the three directories.
func TestLargestTar(t *testing.T) {
	data, blobs := tarWithBlobs(t)
	others := -len(blobs) // entries that are none of these blobs
	for r := tar.NewReader(bytes.NewReader(data)); ; others++ {
		if _, err := r.Next(); err != nil {
			break
		}
	}
	var head bytes.Buffer
	if err := tar.NewWriter(&head).WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "blobs/"}); err != nil {
		t.Fatal(err)
	}
	largest, err := openTar(t, bytes.Repeat(head.Bytes(), bundle.MaxBlobs+others+3))
	if err != nil {
		t.Fatalf("with %d other entries: %v", others, err)
	}
	largest.Close()
}

// TestHostileDirectories checks that a directory with a FIFO, a device or a link out of it neither blocks nor reads other files.
func TestHostileDirectories(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, put := range map[string]func(string) error{
		"FIFO":          func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"absolute link": func(f string) error { return os.Symlink(secret, f) },
		"link upwards":  func(f string) error { return os.Symlink("../"+filepath.Base(filepath.Dir(secret))+"/secret", f) },
		"device":        func(f string) error { return os.Symlink("/dev/zero", f) },
		"directory":     func(f string) error { return os.Mkdir(f, 0o700) },
	} {
		dir := t.TempDir()
		bundletest.Write(t, dir, bundletest.File{Name: "oci-layout", Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)})
		if err := put(filepath.Join(dir, "index.json")); err != nil {
			t.Fatal(err)
		}
		l, err := bundle.OpenLayout(dir)
		if err != nil {
			t.Fatal(err)
		}
		if r, _, err := l.Open("index.json"); err == nil {
			t.Errorf("%s is opened", name)
			r.Close()
		}
		if _, err := bundle.Open(l, nil); err == nil {
			t.Errorf("%s: is a bundle", name)
		}
		l.Close()
	}
}

// TestLimits checks that documents that are too large, too heavy or too deep are rejected before they are decoded.
func TestLimits(t *testing.T) {
	for name, x := range map[string]struct{ text, bad string }{
		"large": {strings.Repeat(" ", 16<<10+1), "at most"},
		"heavy": {`{"manifests":[` + strings.Repeat("{},", 5000) + "{}]}", ""},
		"deep":  {strings.Repeat("[", 10_000), ""},
		"two":   {`{"manifests":[{},{}]}`, "2 entries"},
	} {
		dir := t.TempDir()
		bundletest.Write(t, dir, bundletest.File{Name: "oci-layout", Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
			bundletest.File{Name: "index.json", Data: []byte(x.text)})
		l, err := bundle.OpenLayout(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := checkHarmless(t, name, l, nil); err == nil || !strings.Contains(err.Error(), x.bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTarget checks for whom a bundle is.
func TestTarget(t *testing.T) {
	labels := map[string]string{"site": "x", "kind": "kiosk"}
	for _, x := range []struct {
		target *bundle.Target
		want   bool
	}{
		{nil, true}, {&bundle.Target{Names: []string{"a", "n"}}, true}, {&bundle.Target{Names: []string{"a"}}, false},
		{&bundle.Target{Labels: map[string]string{"site": "x"}}, true}, {&bundle.Target{Labels: map[string]string{"site": "x", "other": ""}}, false},
		{&bundle.Target{Names: []string{"n"}, Labels: map[string]string{"site": "y"}}, false},
	} {
		if got := x.target.Matches("n", labels); got != x.want {
			t.Errorf("%+v: %v", x.target, got)
		}
	}
	c := &bundle.Contents{Expires: "2027-01-31T00:00:00Z"}
	at := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	if !c.IsExpired(at) || c.IsExpired(at.Add(-time.Second)) || (&bundle.Contents{}).IsExpired(at) {
		t.Error("expiry")
	}
}

// TestRanges checks that the offsets of blobs follow from their order and sizes, as a reader of ranges computes them.
func TestRanges(t *testing.T) {
	data, blobs := tarWithBlobs(t)
	end := len(data) - 1024 // two blocks of zeros
	for i := len(blobs) - 1; i >= 0; i-- {
		end -= 512 + (int(blobs[i].Size)+511)/512*512
		if name := "blobs/sha256/" + blobs[i].Digest.Encoded(); !bytes.HasPrefix(data[end:], []byte(name)) {
			t.Fatalf("the blob %d, %s, does not begin at %d", i, name, end)
		}
	}
}

// FuzzOpen reads any bytes as a tar.
func FuzzOpen(f *testing.F) {
	key := newKey(f)
	f.Add(signedTar(f, key))
	f.Add(bundletest.Tar(f, bundletest.File{Name: "oci-layout", Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		bundletest.File{Name: "index.json", Data: []byte(`{"manifests":[{}]}`)}))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := openTar(t, data)
		if err != nil {
			return
		}
		defer l.Close()
		_, _ = checkHarmless(t, "fuzz", l, nil)
	})
}

// TestConfigurationBombs checks that UnknownFields rejects configurations that would take much memory.
func TestConfigurationBombs(t *testing.T) {
	n := &bundle.Node{Fields: []string{"maxPods"}}
	var aliases strings.Builder
	aliases.WriteString("a0: &a0 [x]\n")
	for i := range 30 {
		fmt.Fprintf(&aliases, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	for name, text := range map[string]string{
		"aliases": aliases.String(), "many nodes": "a: [" + strings.Repeat("1,", 1<<19) + "]\n", "no YAML": "a: [",
	} {
		if fields, err := n.UnknownFields(bundle.KubeletFile, []byte(text)); err == nil || !strings.Contains(err.Error(), "kubelet.yaml: ") {
			t.Errorf("%s: %d fields, %v", name, len(fields), err)
		}
	}
	few := "a: &a x\nb: [" + strings.Repeat("*a, ", 9) + "]\n"
	if _, err := n.UnknownFields(bundle.KubeletFile, []byte(few)); err == nil || !strings.Contains(err.Error(), "more than 8 aliases") {
		t.Error(err)
	}
	text := "a: &a [x]\nb: *a\nmaxPods: {c: 1}\n"
	if fields, err := n.UnknownFields(bundle.KubeletFile, []byte(text)); err != nil || !slices.Equal(fields, []string{"a", "b"}) {
		t.Error(fields, err)
	}
}
