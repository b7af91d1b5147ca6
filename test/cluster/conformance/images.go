package conformance

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// An image describes an image for the suite: its OCI configuration, and the name of its additional layer.
type image struct {
	User       string   `json:",omitempty"`
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	Env        []string

	more string // the name of the additional layer: a key of programsOf
}

// images returns the images for the specs. The keys are the references in the suite's own list (test/utils/image in Kubernetes). All images
// share a layer.
func images() map[string]image {
	const e2e = "registry.k8s.io/e2e-test-images/"
	agnhost := image{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}
	web := image{Cmd: []string{"busybox", "httpd", "-f", "-p", "80", "-h", htdocs}}
	return map[string]image{
		e2e + "sample-device-plugin:1.8.0": {Entrypoint: []string{"/sampledeviceplugin", "-alsologtostderr"}, more: "devices"},
		e2e + "agnhost:2.66.1":             agnhost,
		e2e + "agnhost:2.55":               agnhost,
		e2e + "busybox:1.37.0-2":           {Cmd: []string{"sh"}},
		e2e + "nginx:1.27.0-2":             web,
		e2e + "nginx:1.28.0-2":             web,
		e2e + "httpd:2.4.38-4":             web,
		e2e + "httpd:2.4.39-4":             web,
		e2e + "nonewprivs:1.4":             {Cmd: []string{"/nnp"}},
		e2e + "nonroot:1.5":                {User: "1234", Cmd: []string{"sleep", "360000"}},
		e2e + "ipc-utils:1.4":              {Cmd: []string{"sh"}},
		e2e + "perl:5.26":                  {Cmd: []string{"sh"}},
		e2e + "glibc-dns-testing:2.1.1":    {Cmd: []string{"sleep", "360000"}},
		e2e + "kitten:1.8":                 web,
		e2e + "nautilus:1.8": {Cmd: []string{"sh", "-c",
			`mkdir /tmp/www && echo '{"image": "nautilus.jpg"}' >/tmp/www/data.json && exec busybox httpd -f -p 80 -h /tmp/www`}},
		e2e + "sample-apiserver:1.29.2": {Entrypoint: []string{"/sample-apiserver"}, more: "servers"},
		"registry.k8s.io/etcd:3.7.0-0":  {Cmd: []string{"/usr/local/bin/etcd"}, more: "servers"},
		"registry.k8s.io/pause:3.10.2":  {Entrypoint: []string{"/agnhost", "pause"}},
	}
}

// driverImages returns the additional images for the specs of CSI and DRA drivers.
func driverImages() map[string]image {
	const storage = "registry.k8s.io/sig-storage/"
	return map[string]image{
		"registry.k8s.io/e2e-test-images/busybox:1.36.1-1": {Cmd: []string{"sh"}},
		storage + "hostpathplugin:v1.17.1":                 {Entrypoint: []string{"/hostpathplugin"}, more: "drivers"},
		storage + "csi-node-driver-registrar:v2.17.0":      {Entrypoint: []string{"/registrar"}, more: "drivers"},
		storage + "csi-attacher:v4.12.0":                   {Entrypoint: []string{"/csi-attacher"}, more: "drivers"},
		storage + "csi-provisioner:v6.3.0":                 {Entrypoint: []string{"/csi-provisioner"}, more: "drivers"},
		storage + "csi-resizer:v2.2.0":                     {Entrypoint: []string{"/csi-resizer"}, more: "drivers"},
	}
}

// htdocs is the folder of the web servers' files. Some specs rename this folder.
const htdocs = "/usr/local/apache2/htdocs"

// nmeter is a script that replaces the applet nmeter, which Debian's busybox does not have. The script prints the
// time of day once, with milliseconds. The specs need no more.
const nmeter = `#!/bin/bash
t=$EPOCHREALTIME
TZ=UTC printf '%(%H:%M:%S)T.%.3s\n' "${t%.*}" "${t#*.}"
`

// hostPrograms contains the names of programs of this host. The suite's agnhost image contains
// these programs in addition to busybox.
var hostPrograms = []string{"bash", "curl", "dig", "nc", "ss", "ip", "ipcs", "getent"}

// programsOf contains the additional layers by name. The keys of a layer are paths in the image. The values are
// names of programs in the folder of the suites.
var programsOf = map[string]map[string]string{
	"servers": {"sample-apiserver": "sample-apiserver", "usr/local/bin/etcd": "../controlplane/etcd"},
	"devices": {"sampledeviceplugin": "sample-device-plugin"},
	"drivers": {"hostpathplugin": "hostpathplugin", "registrar": "registrar", "csi-attacher": "csi-attacher",
		"csi-provisioner": "csi-provisioner", "csi-resizer": "csi-resizer"},
}

// writeArchive writes an archive of images to path, like docker save, and returns a registry with
// the images. The suite's programs are in dir.
func writeArchive(t testing.TB, path, dir string, images map[string]image) *registry {
	t.Helper()
	r := newRegistry()
	layers := map[string][]byte{"layer.tar": commonLayer(t, filepath.Join(dir, "agnhost"), filepath.Join(dir, "nnp"))}
	for _, img := range images {
		if name := img.more + ".tar"; img.more != "" && layers[name] == nil {
			layers[name] = programLayer(t, dir, programsOf[img.more])
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, data []byte) {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}))
		_, err := w.Write(data)
		must(t, err)
	}
	for name, data := range layers {
		add(name, data)
	}
	type entry struct {
		Config           string
		RepoTags, Layers []string
	}
	var list []entry
	for ref, img := range images {
		img.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
		names := []string{"layer.tar"}
		if img.more != "" {
			names = append(names, img.more+".tar")
		}
		var digests []string
		for _, name := range names {
			digests = append(digests, digest(layers[name]))
		}
		config := encode(t, map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "config": img, "created": "2026-01-01T00:00:00Z",
			"rootfs":  map[string]any{"type": "layers", "diff_ids": digests},
			"history": []any{map[string]any{"created_by": ref}},
		})
		name := fmt.Sprintf("%x.json", sha256.Sum256(config))
		add(name, config)
		list = append(list, entry{name, []string{ref}, names})
		var of [][]byte
		for _, name := range names {
			of = append(of, layers[name])
		}
		r.add(t, ref, config, of)
	}
	add("manifest.json", encode(t, list))
	must(t, w.Close())
	must(t, os.WriteFile(path, b.Bytes(), 0o644))
	return r
}

// programLayer returns a layer that contains only programs.
func programLayer(t testing.TB, dir string, programs map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		data, err := os.ReadFile(filepath.Join(dir, programs[name]))
		must(t, err)
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}))
		_, err = w.Write(data)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

// commonLayer returns the common layer of all images: busybox with its links, programs of this host
// with their libraries, agnhost, and accounts.
func commonLayer(t testing.TB, agnhost, nnp string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	have := map[string]bool{}
	var dir func(string)
	dir = func(name string) {
		if name == "." || have[name] {
			return
		}
		dir(filepath.Dir(name))
		have[name] = true
		mode := int64(0o755)
		if name == "tmp" {
			mode = 0o1777
		}
		must(t, w.WriteHeader(&tar.Header{Name: name + "/", Mode: mode, Typeflag: tar.TypeDir}))
	}
	add := func(h tar.Header, data []byte) {
		if have[h.Name] {
			return
		}
		dir(filepath.Dir(h.Name))
		have[h.Name] = true
		h.Size = int64(len(data))
		must(t, w.WriteHeader(&h))
		_, err := w.Write(data)
		must(t, err)
	}
	file := func(name, from string, mode int64) {
		data, err := os.ReadFile(from)
		must(t, err)
		add(tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeReg}, data)
	}
	for _, d := range []string{"bin", "usr/bin", "usr/local/bin", "etc", "root", "tmp", "var/run", "var/log", "mnt", "uploads",
		"home/user-defined-in-image", htdocs[1:]} {
		dir(d)
	}
	add(tar.Header{Name: htdocs[1:] + "/index.html", Mode: 0o644, Typeflag: tar.TypeReg},
		[]byte("<html><body><h1>It works!</h1></body></html>\n"))
	file("agnhost", agnhost, 0o755)
	add(tar.Header{Name: "agnhost-2", Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: "agnhost"}, nil)
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		file(name, filepath.Join(filepath.Dir(agnhost), name), 0o644)
	}
	file("nnp", nnp, 0o4755)
	for _, p := range hostPrograms {
		path, err := exec.LookPath(p)
		if err != nil {
			t.Fatalf("%v: packaging/deps.sh run test conformance installs it", err)
		}
		file("usr/bin/"+p, path, 0o755)
		for _, lib := range libraries(t, path) {
			file(strings.TrimPrefix(lib, "/"), lib, 0o755)
		}
	}
	add(tar.Header{Name: "bin/bash", Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: "/usr/bin/bash"}, nil)
	// The shell of busybox removes environment variables whose names are not valid in a shell.
	add(tar.Header{Name: "bin/sh", Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: "/usr/bin/bash"}, nil)
	busybox, err := exec.LookPath("busybox")
	must(t, err)
	file("bin/busybox", busybox, 0o755)
	names, err := exec.Command(busybox, "--list").Output()
	must(t, err)
	for name := range strings.FieldsSeq(string(names)) {
		if !have["bin/"+name] && !have["usr/bin/"+name] {
			add(tar.Header{Name: "bin/" + name, Mode: 0o777, Typeflag: tar.TypeSymlink, Linkname: "/bin/busybox"}, nil)
		}
	}
	for path, data := range pauseFiles(t, busybox) {
		add(tar.Header{Name: "var/registry/" + path, Mode: 0o644, Typeflag: tar.TypeReg}, data)
	}
	add(tar.Header{Name: "usr/bin/nmeter", Mode: 0o755, Typeflag: tar.TypeReg}, []byte(nmeter))
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n" +
			"nobody:x:65534:65534::/:/bin/false\n",
		"etc/group":         "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
		"data.json":         "{\"image\": \"kitten.jpg\"}\n",
		"etc/os-release":    "NAME=\"in the place of Alpine Linux\"\n", // a spec needs this name
		"etc/nsswitch.conf": "hosts: files dns\n",
	} {
		add(tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, []byte(text))
	}
	must(t, w.Close())
	return b.Bytes()
}

// pauseFiles returns the files of an image for agnhost's registry server. Some specs pull this image from the server.
func pauseFiles(t testing.TB, busybox string) map[string][]byte {
	t.Helper()
	program, err := os.ReadFile(busybox)
	must(t, err)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "busybox", Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(program))}))
	_, err = w.Write(program)
	must(t, err)
	must(t, w.Close())
	config := encode(t, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": image{Entrypoint: []string{"/busybox", "sleep", "360000"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(b.Bytes())}},
	})
	r := newRegistry()
	r.add(t, "localhost:5000/pause:testing", config, [][]byte{b.Bytes()})
	return r.files()
}

// libraries returns the shared libraries of a program, and the libraries that glibc loads for name lookups.
func libraries(t testing.TB, program string) (out []string) {
	t.Helper()
	said, err := exec.Command("ldd", program).Output()
	must(t, err)
	for field := range strings.FieldsSeq(string(said)) {
		if strings.HasPrefix(field, "/") {
			out = append(out, field)
			if strings.Contains(field, "/libc.so") {
				more, err := filepath.Glob(filepath.Dir(field) + "/libnss_[df]*.so.2")
				must(t, err)
				out = append(out, more...)
			}
		}
	}
	return out
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return b
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
