package containerfiles

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// root returns a Root, its directory, and a second directory next to this one. The Root's directory has symlinks that lead to the second
// directory on the host.
func root(t *testing.T) (r *Root, dir, outside string) {
	t.Helper()
	top := t.TempDir()
	dir, outside = filepath.Join(top, "root"), filepath.Join(top, "outside")
	for _, d := range []string{dir + "/etc", dir + "/data/sub", outside} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{dir + "/data/a": "A", dir + "/data/sub/b": "B", outside + "/secret": "host"} {
		if err := os.WriteFile(name, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"/up": "../outside", "/abs": outside, "/etc/link": "/data", "/data/l": "/etc/passwd"} {
		if err := os.Symlink(to, dir+name); err != nil {
			t.Fatal(err)
		}
	}
	r, err := At(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, dir, outside
}

// pack packs a path of r into an archive. It returns the name of each entry, followed by "=" and the entry's content or link target.
func pack(t *testing.T, r *Root, name string) (out []string, err error) {
	t.Helper()
	p, err := r.Prepare(name)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	var b bytes.Buffer
	if err := p.Pack(&b); err != nil {
		return nil, err
	}
	in := tar.NewReader(&b)
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, head.Name+"="+string(data)+head.Linkname)
	}
}

func TestPack(t *testing.T) {
	r, dir, _ := root(t)
	all := []string{"data/=", "data/a=A", "data/l=/etc/passwd", "data/sub/=", "data/sub/b=B"}
	for name, want := range map[string][]string{"/data": all, "data/": all, "/etc/link/a": {"a=A"}, "/etc/link": {"link=/data"}, "/../data/sub": {"sub/=", "sub/b=B"}} {
		if got, err := pack(t, r, name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := pack(t, r, "/"); err != nil || !slices.Contains(got, "data/a=A") || got[0] != "./=" {
		t.Errorf("/: %q, %v", got, err)
	}
	for _, name := range []string{"/none", "/none/x", "/up/secret", "/abs/secret", "/data/a/x", "/data/\x00", strings.Repeat("x/", 5000)} {
		if got, err := pack(t, r, name); err == nil || strings.Contains(err.Error(), "/proc/self") {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	if _, err := r.Prepare("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if err := unix.Mkfifo(dir+"/etc/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pack(t, r, "/etc"); err == nil || !strings.Contains(err.Error(), "etc/fifo is neither") {
		t.Errorf("a FIFO: %v", err)
	}
	deep := dir + "/deep"
	for range maxDepth + 2 {
		deep += "/d"
	}
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := pack(t, r, "/deep"); err == nil || !strings.Contains(err.Error(), "levels deep") {
		t.Errorf("nested: %v", err)
	}
}

// An entry of an archive.
type entry struct {
	name, text, link string
	kind             byte
	size             int64 // more than len(text): the archive ends early
	pax              map[string]string
}

func archive(t *testing.T, list ...entry) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range list {
		head := &tar.Header{Name: e.name, Linkname: e.link, Typeflag: e.kind, Mode: 0o640, Size: max(e.size, int64(len(e.text))), PAXRecords: e.pax}
		if err := w.WriteHeader(head); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, e.text)
	}
	w.Close()
	return &b
}

func file(name, text string) entry { return entry{name: name, text: text, kind: tar.TypeReg} }

func TestUnpack(t *testing.T) {
	r, dir, outside := root(t)
	read := func(name, want string) {
		t.Helper()
		if data, err := os.ReadFile(dir + name); string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	unpack := func(to, base string, list ...entry) {
		t.Helper()
		if err := r.Unpack(archive(t, list...), to, base); err != nil {
			t.Errorf("%s: %v", to, err)
		}
	}
	unpack("/etc/new", "x", file("x", "one"))
	read("/etc/new", "one")
	unpack("/etc/new", "x", file("x", "2"))
	read("/etc/new", "2")
	unpack("/etc", "x", file("x", "into"))
	read("/etc/x", "into")
	unpack("/etc/link", "x", file("x", "through a link"))
	read("/data/x", "through a link")
	unpack("/etc/link/", "tree", entry{name: "tree/", kind: tar.TypeDir}, entry{name: "tree/s/", kind: tar.TypeDir}, file("tree/s/f", "deep"),
		entry{name: "tree/l", link: "s/f", kind: tar.TypeSymlink})
	read("/data/tree/s/f", "deep")
	read("/data/tree/l", "deep")
	if info, err := os.Stat(dir + "/data/tree/s/f"); err != nil || info.Mode() != 0o640 {
		t.Errorf("mode: %v, %v", info.Mode(), err)
	}
	if err := r.Unpack(archive(t, file("x", "")), "/data/l", "x"); err == nil {
		t.Error("a link that leads nowhere is followed")
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}

// TestHostile calls Unpack with malicious archives, and with malicious links and files in the container. Unpack must not write outside of
// the root, open a device or write more than the archive contains.
func TestHostile(t *testing.T) {
	for name, list := range map[string][]entry{
		"absolute": {file("/x", "")}, "up": {file("../x", "")}, "up inside": {file("x/../../y", "")}, "two": {file("x", ""), file("y", "")},
		"dot": {{name: "./", kind: tar.TypeDir}}, "device": {{name: "x", kind: tar.TypeChar}}, "fifo": {{name: "x", kind: tar.TypeFifo}}, "hard link": {{name: "x", link: "/etc/passwd", kind: tar.TypeLink}},
		"empty": {}, "early end": {{name: "x", kind: tar.TypeReg, size: 1 << 40}},
		"out by its own link":     {{name: "x", link: "../outside", kind: tar.TypeSymlink}, file("x/evil", "")},
		"out by an absolute link": {{name: "x", link: "/tmp", kind: tar.TypeSymlink}, file("x/evil", "")},
		"file as a directory":     {file("x", ""), file("x/y", "")},
	} {
		r, _, outside := root(t)
		if err := r.Unpack(archive(t, list...), "/etc/new", "x"); err == nil {
			t.Errorf("%s is accepted", name)
		}
		if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
			t.Errorf("%s: outside: %v, %v", name, entries, err)
		}
	}
	r, dir, outside := root(t)
	for _, to := range []string{"/up", "/up/x", "/abs", "/abs/x", "/none/x", "/none/", "/"} {
		if err := r.Unpack(archive(t, file("x", "evil")), to, "secret"); (err == nil) != (to == "/") {
			t.Errorf("%s: %v", to, err)
		}
		if data, err := os.ReadFile(outside + "/secret"); string(data) != "host" {
			t.Fatalf("%s: %q, %v", to, data, err)
		}
	}
	for _, base := range []string{"", ".", "..", "a/b"} {
		if err := r.Unpack(archive(t, file("x", "")), "/etc", base); err == nil {
			t.Errorf("the name %q is accepted", base)
		}
	}
	if err := unix.Mkfifo(dir+"/etc/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Unpack(archive(t, file("x", "")), "/etc/fifo", "x"); err == nil {
		t.Error("a FIFO is opened")
	}
}

// TestBomb checks that an archive of a sparse file is rejected. The archive is small, but the file would contain a terabyte of zeros.
func TestBomb(t *testing.T) {
	r, dir, _ := root(t)
	tarball := filepath.Join(t.TempDir(), "sparse.tar")
	holes := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(holes, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(holes, 1<<40); err != nil {
		t.Skip("no sparse files here:", err)
	}
	for _, format := range []string{"gnu", "posix"} {
		out, err := exec.Command("tar", "--format="+format, "-cSf", tarball, "-C", filepath.Dir(holes), "x").CombinedOutput()
		if err != nil {
			t.Skipf("no GNU tar here: %v %s", err, out)
		}
		f, err := os.Open(tarball)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Unpack(f, "/etc/new", "x")
		f.Close()
		if info, serr := os.Stat(dir + "/etc/new"); err == nil || serr == nil && info.Size() > 0 {
			t.Errorf("%s: %v, %v", format, err, info)
		}
	}
}

type fakeRuntime struct {
	pid int
	err error
}

func (f fakeRuntime) ContainerStatus(context.Context, *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return &api.ContainerStatusResponse{Info: map[string]string{"other": "{", "info": fmt.Sprintf(`{"pid": %d}`, f.pid)}}, f.err
}

// TestOpen checks that Open opens the root of a process only if the process is in the container's cgroup and has its own mount namespace.
func TestOpen(t *testing.T) {
	cgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSpace(string(cgroup))
	id := line[max(0, len(line)-minID):] // stands for the ID in the name of the cgroup
	if !belongsTo(cgroup, id) || belongsTo(cgroup, "") || belongsTo(cgroup, ":") || belongsTo(cgroup, strings.Repeat("f", 64)) {
		t.Errorf("cgroup %s", cgroup)
	}
	for name, f := range map[string]fakeRuntime{"this process": {pid: os.Getpid()}, "no process": {}, "an ended process": {pid: 1 << 30}, "an error": {err: io.ErrClosedPipe}} {
		if r, err := Open(t.Context(), f, id); err == nil {
			r.Close()
			t.Errorf("%s is opened", name)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Credential: &syscall.Credential{Uid: 4321, Gid: 1234}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip("no mount namespaces here:", err)
	}
	defer cmd.Wait()
	defer in.Close()
	r, err := Open(t.Context(), fakeRuntime{pid: cmd.Process.Pid}, id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.user.uid != 4321 || r.user.gid != 1234 || r.user.capabilities != 0 {
		t.Errorf("new files would belong to %+v", r.user)
	}
	if got, err := pack(t, r, "/proc/self/cgroup-none"); err == nil {
		t.Errorf("%q", got)
	}
	if _, err := Open(t.Context(), fakeRuntime{pid: cmd.Process.Pid}, strings.Repeat("f", 64)); !errors.Is(err, ErrNoRoot) {
		t.Errorf("another container: %v", err)
	}
}
