package crisuite

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// ImageRef is the reference of the image that Image returns.
const ImageRef = "islet.test/prog:1"

// Build builds a static binary of a package of this module and returns its path.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, b)
	}
	return out
}

// Image returns an OCI archive of the image ImageRef. It contains the program at /prog,
// /etc/passwd, /etc/group, and the configuration that the tests expect.
func Image(t testing.TB, program string) []byte {
	return packImage(t, ImageRef, nil, baseLayer(t, program), archiveFiles(t, []file{{"second", 0o644, []byte("layer")}}))
}

// An Entry is a file of the second layer of an image.
type Entry struct {
	tar.Header
	Data string
}

// ConfiguredImage returns an image like Image does, but with the reference HostileRef(shape). The fields in the map config replace
// the fields of the image's configuration. The entries replace the second layer.
func ConfiguredImage(t testing.TB, program, shape string, config map[string]any, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size = int64(len(e.Data))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packImage(t, HostileRef(shape), config, baseLayer(t, program), b.Bytes())
}

// HostileRef returns the reference of the image of HostileImage or ConfiguredImage with the given shape.
func HostileRef(shape string) string { return "islet.test/" + shape + ":1" }

// HostileImage returns an image like Image does, but with the reference HostileRef(shape). Its second layer contains
// a single file. This is a symlink to link, or a FIFO if link is empty.
func HostileImage(t testing.TB, program, shape, name, link string) []byte {
	t.Helper()
	h := &tar.Header{Name: name, Mode: 0o777, Typeflag: tar.TypeFifo}
	if link != "" {
		h.Typeflag, h.Linkname = tar.TypeSymlink, link
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.WriteHeader(h), w.Close()); err != nil {
		t.Fatal(err)
	}
	return packImage(t, HostileRef(shape), nil, baseLayer(t, program), b.Bytes())
}

// baseLayer returns the first layer, which contains the program and the users.
func baseLayer(t testing.TB, program string) []byte {
	t.Helper()
	bin, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	return archiveFiles(t, []file{
		{"prog", 0o755, bin},
		{"etc/passwd", 0o644, []byte("root:x:0:0::/:/prog\nnina:x:1234:2345::/:/prog\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nstaff:x:77:nina\n")},
		{"tmp/", 0o777, nil},
	})
}

// packImage returns the OCI archive of an image with two layers. The map change replaces fields of the image's configuration.
func packImage(t testing.TB, ref string, change map[string]any, layer, second []byte) []byte {
	t.Helper()
	fields := map[string]any{
		"Entrypoint": []string{"/prog"}, "Cmd": []string{"print", "default"},
		"Env": []string{"FROM=image", "BOTH=image"}, "WorkingDir": "/tmp",
	}
	maps.Copy(fields, change)
	config := encode(t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": fields,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digestOf(layer), digestOf(second)}},
	})
	const kind = "application/vnd.oci.image."
	manifest := encode(t, map[string]any{
		"schemaVersion": 2, "mediaType": kind + "manifest.v1+json",
		"config": describeBlob(kind+"config.v1+json", config, nil),
		"layers": []any{describeBlob(kind+"layer.v1.tar", layer, nil), describeBlob(kind+"layer.v1.tar", second, nil)},
	})
	index := encode(t, map[string]any{"schemaVersion": 2, "manifests": []any{
		describeBlob(kind+"manifest.v1+json", manifest, map[string]string{
			"org.opencontainers.image.ref.name": ref, "io.containerd.image.name": ref,
		}),
	}})
	blob := func(b []byte) file { return file{"blobs/sha256/" + digestOf(b)[len("sha256:"):], 0o644, b} }
	return archiveFiles(t, []file{
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", 0o644, index}, blob(manifest), blob(config), blob(layer), blob(second),
	})
}

type file struct {
	name string
	mode int64
	data []byte
}

func archiveFiles(t testing.TB, files []file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}
		if f.data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func describeBlob(mediaType string, b []byte, annotations map[string]string) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": digestOf(b), "size": len(b), "annotations": annotations}
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
