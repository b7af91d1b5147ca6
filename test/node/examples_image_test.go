package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// hostTools are the programs of the host in the images of the examples, so that the shell scripts of the examples really run.
var hostTools = []string{"sh", "cat", "date", "dd", "id", "mkdir", "rm", "sleep", "stat", "stty", "timeout"}

// roles are the programs for which podtool stands in.
var roles = []string{
	"bin/mosquitto", "bin/mosquitto_pub", "bin/redis-server", "bin/redis-cli", "bin/httpd", "bin/wget", "bin/nc", "bin/ffmpeg",
	"bin/gpiomon", "bin/i2cget", "bin/cyclictest", "bin/node_exporter", "bin/registry", "bin/home-assistant", "bin/control",
	"bin/analytics", "fluent-bit/bin/fluent-bit",
}

// exampleLayer returns the layer of every image of the examples: podtool, its roles, and programs of the host with their libraries.
func exampleLayer(t *testing.T) []byte {
	t.Helper()
	files := map[string][]byte{"podtool": []byte(fileText(t, filepath.Join(filepath.Dir(machine.Archive(t)), "podtool")))}
	for _, role := range roles {
		files[role] = []byte("#!/podtool role\n") // the kernel appends the path of the file
	}
	library := regexp.MustCompile(`(/\S+) \(0x`)
	for _, tool := range hostTools {
		program, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		files["bin/"+tool] = []byte(fileText(t, program))
		libraries, err := exec.Command("ldd", program).Output()
		if err != nil {
			t.Fatalf("ldd %s: %v", program, err)
		}
		for _, l := range library.FindAllStringSubmatch(string(libraries), -1) {
			files[strings.TrimPrefix(l[1], "/")] = []byte(fileText(t, l[1]))
		}
	}
	return packTree(t, files)
}

// packTree returns an archive of executable files, with their directories and /tmp.
func packTree(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	have := map[string]bool{".": true}
	var directory func(string, int64)
	directory = func(name string, mode int64) {
		if have[name] {
			return
		}
		have[name] = true
		directory(path.Dir(name), 0o755)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]int64{"tmp": 0o1777, "dev": 0o755, "etc": 0o755, "proc": 0o755, "sys": 0o755} {
		directory(name, mode)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		directory(path.Dir(name), 0o755)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// imageConfig returns the configuration of an image with one layer. The image runs the program in /bin with its own name.
func imageConfig(t *testing.T, ref string, layer []byte) []byte {
	t.Helper()
	name, _, _ := strings.Cut(path.Base(ref), ":")
	b, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Entrypoint": []string{"/bin/" + name}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// exampleImages returns an archive with every image that a manifest of the examples names. The node has these images under their real
// names, so that the manifests need no change.
func exampleImages(t *testing.T, manifests []string) []byte {
	t.Helper()
	type image struct {
		Config           string
		RepoTags, Layers []string
	}
	files := map[string][]byte{"layer.tar": exampleLayer(t)}
	var images []image
	for _, file := range manifests {
		for _, found := range regexp.MustCompile(`(?m)^ *(?:- )?image: (\S+)$`).FindAllStringSubmatch(fileText(t, file), -1) {
			config := imageConfig(t, found[1], files["layer.tar"])
			name := strings.TrimPrefix(digest(config), "sha256:") + ".json"
			if slices.ContainsFunc(images, func(i image) bool { return i.RepoTags[0] == found[1] }) {
				continue
			}
			files[name] = config
			images = append(images, image{name, []string{found[1]}, []string{"layer.tar"}})
		}
	}
	b, err := json.Marshal(images)
	if err != nil {
		t.Fatal(err)
	}
	files["manifest.json"] = b
	return packTree(t, files)
}

// fillMirror writes an image into the directory from which the stand-in of the registry serves.
func fillMirror(t *testing.T, dir, ref string) {
	t.Helper()
	layer := packTree(t, map[string][]byte{
		"podtool": []byte(fileText(t, filepath.Join(filepath.Dir(machine.Archive(t)), "podtool"))), "bin/mirrored": []byte("#!/podtool sleep\n"),
	})
	config := imageConfig(t, ref, layer)
	part := func(kind string, b []byte) map[string]any {
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": digest(b), "size": len(b)}
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": part("config.v1+json", config), "layers": []any{part("layer.v1.tar", layer)},
	})
	if err != nil {
		t.Fatal(err)
	}
	name, tag, _ := strings.Cut(path.Base(ref), ":")
	top := filepath.Join(dir, "v2", name)
	for file, b := range map[string][]byte{
		"manifests/" + tag: manifest, "manifests/" + digest(manifest): manifest,
		"blobs/" + digest(config): config, "blobs/" + digest(layer): layer,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(top, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, file), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
