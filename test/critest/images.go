package critest

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// An image describes an image of the suite: the user and the command in its configuration.
type image struct {
	user    string
	command []string
}

// shell is the command of the suite's images that contain busybox.
var shell = []string{"sh"}

// images returns the images that the suite uses, by name. A name without a registry is valid for every registry.
func images() map[string]image {
	web := func(port string) image { return image{command: []string{"/usr/sbin/nginx", "master process", port}} }
	return map[string]image{
		"e2e-test-images/busybox:1.29-2": {command: shell},
		"e2e-test-images/nginx:1.14-2":   web("80"),
		"e2e-test-images/httpd:2.4.39-4": {command: []string{"/usr/sbin/httpd", "master process", "80"}},
		"e2e-test-images/nonewprivs:1.3": {command: []string{"/nnp"}},
		"pause:3.9":                      {command: []string{"/pause"}},
		"k8s-staging-cri-tools/hostnet-nginx-" + runtime.GOARCH + ":latest": web("12003"),
		"k8s-staging-cri-tools/test-image-latest:latest":                    {command: shell},
		"k8s-staging-cri-tools/test-image-tag:test":                         {command: shell},
		"k8s-staging-cri-tools/test-image-tag:all":                          {command: shell},
		"k8s-staging-cri-tools/test-image-1:latest":                         {command: shell},
		"k8s-staging-cri-tools/test-image-2:latest":                         {command: shell},
		"k8s-staging-cri-tools/test-image-3:latest":                         {command: shell},
		"k8s-staging-cri-tools/test-image-tags:1,2,3":                       {command: shell},
		"k8s-staging-cri-tools/test-image-user-uid:latest":                  {user: "1002", command: shell},
		"k8s-staging-cri-tools/test-image-user-username:latest":             {user: "www-data", command: shell},
		"k8s-staging-cri-tools/test-image-user-uid-group:latest":            {user: "1003:users", command: shell},
		"k8s-staging-cri-tools/test-image-user-username-group:latest":       {user: "www-data:100", command: shell},
		"k8s-staging-cri-tools/test-image-predefined-group:latest":          {user: "1000", command: shell},
	}
}

// pgrep is a script that replaces the applet pgrep, which Debian's busybox does not have.
const pgrep = `#!/bin/sh
for d in /proc/[0-9]*; do
	read -r c <$d/comm 2>/dev/null && [ "$c" = "$1" ] && echo ${d#/proc/} && found=1
done
[ -n "$found" ]
`

// baseLayer returns the common layer of all images. It contains busybox, the tool, links to both
// programs, and accounts.
func baseLayer(t testing.TB, busybox, tool string) []byte {
	t.Helper()
	box, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	names, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(tool)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(h tar.Header, data []byte) {
		h.Size = int64(len(data))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"bin", "usr", "usr/sbin", "etc", "root", "home", "home/default-user", "var", "var/run", "mnt"} {
		add(tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir}, nil)
	}
	add(tar.Header{Name: "tmp/", Mode: 0o1777, Typeflag: tar.TypeDir}, nil)
	add(tar.Header{Name: "bin/busybox", Mode: 0o755, Typeflag: tar.TypeReg}, box)
	add(tar.Header{Name: "bin/sh", Mode: 0o755, Typeflag: tar.TypeReg}, plainShell(t, box))
	add(tar.Header{Name: "bin/pgrep", Mode: 0o755, Typeflag: tar.TypeReg}, []byte(pgrep))
	add(tar.Header{Name: "bin/ipcs", Mode: 0o755, Typeflag: tar.TypeReg}, []byte("#!/bin/sh\nexec cat /proc/sysvipc/shm\n"))
	for _, name := range strings.Fields(string(names)) {
		if !slices.Contains([]string{"sh", "busybox", "httpd"}, name) {
			add(tar.Header{Name: "bin/" + name, Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: "/bin/busybox"}, nil)
		}
	}
	for name, mode := range map[string]int64{"usr/sbin/nginx": 0o755, "nnp": 0o4755} {
		add(tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeReg}, program)
	}
	for _, name := range []string{"usr/sbin/httpd", "pause"} {
		add(tar.Header{Name: name, Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: "/usr/sbin/nginx"}, nil)
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var:/bin/sh\n" +
			"default-user:x:1000:1000::/home/default-user:/bin/sh\nnobody:x:65534:65534::/home:/bin/sh\n",
		"etc/group": "root:x:0:\nwww-data:x:33:\nusers:x:100:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n",
	} {
		add(tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, []byte(text))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// plainShell returns a changed copy of busybox. The suite masks /bin/ls and then runs ls in a shell. The shell of Debian's busybox
// would run the built-in ls instead. The shell of the changed copy executes /bin/ls.
func plainShell(t testing.TB, box []byte) []byte {
	t.Helper()
	before, after := []byte("\x00lpr\x00ls\x00"), []byte("\x00lpr\x00lz\x00")
	if !bytes.Contains(box, before) {
		i := bytes.Index(box, []byte("\x00ls\x00lsmod\x00"))
		if i < 0 {
			t.Log("busybox has no table of applet names like Debian's; it is used unchanged")
			return box
		}
		before, after = []byte("\x00ls\x00lsmod\x00"), []byte("\x00lr\x00lsmod\x00")
	}
	return bytes.Replace(box, before, after, 1)
}

// writeImages writes all images below dir, in the layout that the tool's registry serves.
func writeImages(t testing.TB, dir, busybox, tool string) {
	t.Helper()
	put := func(path string, data []byte) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	blob := func(kind string, data []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
		put("blobs/"+digest, data)
		return map[string]any{"mediaType": "application/vnd.oci.image." + kind, "digest": digest, "size": len(data)}
	}
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	layer := blob("layer.v1.tar", baseLayer(t, busybox, tool))
	for name, img := range images() {
		repo, tags, _ := strings.Cut(name, ":")
		config := blob("config.v1+json", encode(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "rootfs": map[string]any{"type": "layers", "diff_ids": []any{layer["digest"]}},
			"config": map[string]any{"User": img.user, "Cmd": img.command, "Env": []string{"PATH=/usr/sbin:/bin"},
				"Labels": map[string]string{"name": name}},
		}))
		manifest := blob("manifest.v1+json", encode(map[string]any{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": []any{layer},
		}))
		for tag := range strings.SplitSeq(tags, ",") {
			put(filepath.Join("manifests", repo, tag), []byte(manifest["digest"].(string)))
		}
	}
}
