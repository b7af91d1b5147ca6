package ctrd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/crisuite"
)

// hostileTime is the time limit for the start of a container. A start that does not block is much shorter.
const hostileTime = 30 * time.Second

// tree returns the modes, times and contents of all files in a directory.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(&all, path, st.Mode(), st.ModTime().UnixNano())
		if st.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			fmt.Fprintf(&all, "%s\n", b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestHostileRootfs checks images with a hostile file at a path where the runtime creates a file or a mount. The hostile file is a FIFO, or
// a symlink that could lead to the host. Within hostileTime, the container must either run in its own root file system or fail with an
// error. No file of the host may change. Without ISLET_TEST_LONG every second shape is tested.
func TestHostileRootfs(t *testing.T) {
	n := newNode(t, 16)
	ctx := context.Background()
	canary := filepath.Join(n.dir, "canary")
	for _, dir := range []string{canary, filepath.Join(canary, "shm"), filepath.Join(canary, "pts")} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"file": "secret", "hosts": "secret", "passwd": "root:x:0:0::/canary:/x\n", "group": "secret"} {
		if err := os.WriteFile(filepath.Join(canary, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	out := strings.Repeat("/..", 12) + canary
	cfg := n.podConfig(1)
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ name, link string }{
		{"etc", out}, {"dev", out}, {"proc", out}, {"sys", out}, {"dev/shm", out}, {"tmp", out},
		{"etc/passwd", out + "/passwd"}, {"etc/hosts", out + "/file"}, {"etc/resolv.conf", out + "/new"}, {"etc/hostname", "/proc/1/root" + canary + "/file"},
		{"dev", ""}, {"etc", ""}, {"sys", ""}, {"proc", ""}, {"tmp", ""}, {"dev/shm", ""}, {"etc/hosts", ""}, {"etc/resolv.conf", ""}, {"etc/group", ""}, {"etc/passwd", ""},
	} {
		if i%2 == 1 && os.Getenv("ISLET_TEST_LONG") == "" {
			continue
		}
		shape := fmt.Sprintf("shape-%d", i)
		t.Run(fmt.Sprint(strings.ReplaceAll(c.name, "/", "-"), map[bool]string{true: " FIFO", false: " link"}[c.link == ""]), func(t *testing.T) {
			if _, err := n.images.ImportArchive(ctx, bytes.NewReader(crisuite.HostileImage(t, programs.prog, shape, c.name, c.link)),
				shape+".tar", nil); err != nil {
				t.Fatal(err)
			}
			ctr := containerConfig(shape, "print", "ran", "put", "/etc/hosts", "x", "put", "/etc/resolv.conf", "x", "put", "/dev/shm/x", "x",
				"put", "/tmp/file", "x", "put", "file", "x", "env", "HOME")
			ctr.Image.Image = crisuite.HostileRef(shape)
			before, began := tree(t, canary), time.Now()
			output := n.tryContainer(t, s.PodSandboxId, cfg, ctr)
			if took := time.Since(began); took > hostileTime {
				t.Errorf("it took %v", took)
			}
			t.Log(output)
			if after := tree(t, canary); after != before {
				t.Fatalf("the host's directory was\n%s\nand is\n%s", before, after)
			}
			if strings.Contains(output, "/canary:") || strings.Contains(output, "secret") {
				t.Error("it has read the host's files")
			}
		})
	}
}

// tryContainer runs a container until it ends, and returns its output or the error. An error must contain a path.
func (n *node) tryContainer(t testing.TB, pod string, cfg *api.PodSandboxConfig, ctr *api.ContainerConfig) string {
	t.Helper()
	ctx := context.Background()
	c, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: pod, SandboxConfig: cfg, Config: ctr})
	if err == nil {
		_, err = n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId})
	}
	if err != nil {
		if !strings.Contains(err.Error(), "/") || strings.HasSuffix(err.Error(), "exit status 1") || strings.Contains(err.Error(), "islet.test") {
			t.Errorf("the error names no file: %v", err)
		}
		return "error: " + err.Error()
	}
	eventually(t, "it ends", func() bool { return n.status(t, c.ContainerId).State == api.ContainerState_CONTAINER_EXITED })
	b, err := os.ReadFile(filepath.Join(cfg.LogDirectory, ctr.LogPath))
	if err != nil || !strings.Contains(string(b), "ran\n") {
		t.Errorf("it neither failed nor ran: %v, %s", err, b)
	}
	return string(b)
}

// TestAccountsOfVolumes checks a volume that replaces /etc/passwd or /etc/group. A FIFO would block OCI runtimes, so the container fails
// immediately. If the volume contains a regular /etc/passwd, the container's HOME is taken from this file.
func TestAccountsOfVolumes(t *testing.T) {
	n := newNode(t, 16)
	dir := filepath.Join(n.dir, "pods", "u", "volumes", "v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fifo/passwd", "fifo/passwd2", "groups/group", "plain/passwd", "huge/group"} {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && filepath.Dir(name) == "plain" {
			err = os.WriteFile(path, []byte("root:x:0:0:r:/volume:/x\n"), 0o644)
		} else if err == nil && filepath.Dir(name) == "huge" {
			err = errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 1<<40))
		} else if err == nil {
			err = unix.Mkfifo(path, 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cfg := n.podConfig(1)
	s, err := n.RunPodSandbox(context.Background(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ at, host, want string }{
		{"/etc/passwd", "fifo/passwd", "the container's /etc/passwd cannot be used"},
		{"/etc", "fifo", "the container's /etc/passwd cannot be used"},
		{"/etc", "groups", "the container's /etc/group cannot be used"},
		{"/etc/group", "huge/group", "the container's /etc/group cannot be used"},
		{"/etc/passwd", "plain/passwd", " /volume\n"},
		{"/etc/", "plain", " /volume\n"},
		{"/etc/passwd-", "fifo/passwd2", " /\n"},
	} {
		ctr := containerConfig(fmt.Sprint("c", i), "print", "ran", "env", "HOME")
		ctr.Mounts = []*api.Mount{{ContainerPath: c.at, HostPath: filepath.Join(dir, c.host)}}
		began := time.Now()
		if got := n.tryContainer(t, s.PodSandboxId, cfg, ctr); !strings.Contains(got, c.want) {
			t.Errorf("%s on %s: %s", c.host, c.at, got)
		}
		if took := time.Since(began); took > hostileTime {
			t.Errorf("%s on %s: it took %v", c.host, c.at, took)
		}
	}
}

// TestAccountsSwapped checks a volume that replaces /etc/passwd with a FIFO after the check. The start fails after two minutes, and no
// process is left.
func TestAccountsSwapped(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("ISLET_TEST_LONG is not set")
	}
	n := newNode(t, 16)
	ctx := context.Background()
	passwd := filepath.Join(n.dir, "passwd")
	if err := os.WriteFile(passwd, []byte("root:x:0:0:r:/:/x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := n.podConfig(1)
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	ctr := containerConfig("main", "print", "ran")
	ctr.Mounts = []*api.Mount{{ContainerPath: "/etc/passwd", HostPath: passwd}}
	c, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, SandboxConfig: cfg, Config: ctr})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(passwd); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(passwd, 0o666); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId})
	if took := time.Since(began); took > 3*time.Minute || err == nil && took > hostileTime {
		t.Errorf("it took %v: %v", took, err)
	}
	t.Log(time.Since(began), err)
	for _, path := range cgroupDirs(n.cgroup) {
		procs, _ := filepath.Glob(filepath.Join(path, "*/*/cgroup.procs"))
		for _, p := range procs {
			if b, _ := os.ReadFile(p); err != nil && len(b) > 0 {
				t.Errorf("processes are left in %s: %s", p, b)
			}
		}
	}
	n.removeAll(t) // newNode checks that no resource is left
}

// TestHostileVolume checks an image volume whose mounted subpath is a FIFO, or contains a symlink that could lead to the host. The
// container sees only files of the image, or is rejected.
func TestHostileVolume(t *testing.T) {
	n := newNode(t, 16)
	ctx := t.Context()
	canary := filepath.Join(n.dir, "canary")
	if err := os.Mkdir(canary, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(canary, "passwd"), []byte("the host's secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: n.podConfig(1)})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		link, sub string
		created   bool // whether the container can be created
	}{
		{canary, "link", false}, {strings.Repeat("../", 12) + canary, "link", false}, {"/proc/1/root" + canary, "link", false}, {"link", "link", false},
		{"", "link", false}, {"/etc", "link", true}, {"../../etc", "link", true}, {"/", "link/etc", true},
	} {
		shape := fmt.Sprintf("volume-%d", i)
		if _, err := n.images.ImportArchive(ctx, bytes.NewReader(crisuite.HostileImage(t, programs.prog, shape, "link", c.link)),
			shape+".tar", nil); err != nil {
			t.Fatal(err)
		}
		ctr := containerConfig(shape, "read", "/vol/passwd")
		ctr.Mounts = []*api.Mount{{ContainerPath: "/vol", Image: &api.ImageSpec{Image: crisuite.HostileRef(shape)}, ImageSubPath: c.sub}}
		made, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: s.PodSandboxId, Config: ctr})
		if (err == nil) != c.created {
			t.Errorf("link to %q: %v", c.link, err)
		}
		if err != nil {
			continue
		}
		if _, err := n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
			t.Errorf("link to %q: %v", c.link, err)
			continue
		}
		n.waitLogged(t, 1, shape, "root:x:0:0")
	}
}
