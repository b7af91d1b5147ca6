package ctrd_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sizeOf returns the total size of the files in a directory, in bytes. Files on other file systems do not count.
func sizeOf(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	top, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := os.Lstat(path)
		if err != nil {
			return err
		}
		switch {
		case st.Sys().(*syscall.Stat_t).Dev == top.Sys().(*syscall.Stat_t).Dev:
			bytes += st.Sys().(*syscall.Stat_t).Blocks * 512
		case d.IsDir():
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestSandboxFilesHaveALimit checks that a pod can write only a limited amount of data to its sandbox files and to /dev/shm. The data uses
// no space of the run directory.
func TestSandboxFilesHaveALimit(t *testing.T) {
	n := newNode(t, 16)
	ctx := context.Background()
	for i, c := range []struct {
		name string
		ipc  api.NamespaceMode
		room string // size and mode of /dev/shm
		most int64  // limit in MiB
	}{{"own shm", api.NamespaceMode_POD, "64 dtrwxrwxrwx", 64}, {"the host's shm", api.NamespaceMode_NODE, "", 1}} {
		t.Run(c.name, func(t *testing.T) {
			cfg := n.podConfig(i)
			cfg.Linux.SecurityContext.NamespaceOptions.Ipc = c.ipc
			s, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: cfg})
			if err != nil {
				t.Fatal(err)
			}
			id := n.startIn(t, s.PodSandboxId, cfg, containerConfig("main", "wait"))
			exec := func(args ...string) string {
				t.Helper()
				out, err := n.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: append([]string{"/prog"}, args...), Timeout: 60})
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSpace(string(out.Stdout) + string(out.Stderr))
			}
			if c.room != "" {
				if got := exec("room", "/dev/shm"); got != c.room {
					t.Errorf("/dev/shm is %q, want %q", got, c.room)
				}
				if got := exec("ls", "/dev/shm"); got != "" {
					t.Errorf("/dev/shm is not empty: %s", got)
				}
				other := containerConfig("other", "write", "/dev/shm/x", "text", "read", "/dev/shm/x", "wait")
				other.Linux.SecurityContext.RunAsUser = &api.Int64Value{Value: 1234}
				n.startIn(t, s.PodSandboxId, cfg, other)
				eventually(t, "another user writes to /dev/shm", func() bool { return exec("ls", "/dev/shm") == "x" })
			}
			before := sizeOf(t, n.run)
			for _, path := range []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf"} {
				if got := exec("fill", path); !strings.Contains(got, "no space left") {
					t.Errorf("fill %s: %s", path, got)
				}
			}
			if grown := sizeOf(t, n.run) - before; grown > 1<<18 {
				t.Errorf("the run directory of the host has grown by %d bytes", grown)
			}
			var room unix.Statfs_t
			if err := unix.Statfs(filepath.Join(n.run, "sandboxes", s.PodSandboxId), &room); err != nil {
				t.Fatal(err)
			}
			if got := int64(room.Blocks) * room.Bsize >> 20; got != c.most || room.Files == 0 || room.Files > 1<<14 {
				t.Errorf("the limit is %d MiB and %d inodes, want %d MiB", got, room.Files, c.most)
			}
		})
	}
}

// TestUpdateDNS checks that the running containers of a sandbox see the new DNS servers, also after the agent was restarted. A file that a
// container has changed stays.
func TestUpdateDNS(t *testing.T) {
	n := newNode(t, 16)
	cfg := n.podConfig(1)
	cfg.DnsConfig = &api.DNSConfig{} // the machine had no network
	s, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	pod := s.PodSandboxId
	ctr := n.startIn(t, pod, cfg, containerConfig("main", "wait"))
	mount := filepath.Join(n.run, "sandboxes", pod, "resolv.conf")
	inode := func() uint64 {
		info, err := os.Stat(mount)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	first := inode()
	update := func(d *api.DNSConfig, want string) {
		t.Helper()
		var asked []string
		if err := n.UpdateDNS(func(m *api.PodSandboxMetadata) *api.DNSConfig { asked = append(asked, m.Uid); return d }); err != nil {
			t.Fatal(err)
		}
		if len(asked) != 1 || asked[0] != cfg.Metadata.Uid {
			t.Errorf("asked about %q", asked)
		}
		out, err := n.ExecSync(context.Background(), &api.ExecSyncRequest{ContainerId: ctr, Cmd: []string{"/prog", "read", "/etc/resolv.conf"}, Timeout: 60})
		if got := strings.TrimSpace(string(out.GetStdout())); err != nil || got != want || inode() != first {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	servers := func(list ...string) *api.DNSConfig { return &api.DNSConfig{Servers: list} }
	update(nil, "")
	update(servers("192.0.2.1", "192.0.2.2"), "nameserver 192.0.2.1\nnameserver 192.0.2.2")
	update(servers("192.0.2.3"), "nameserver 192.0.2.3")
	n.stop(t)
	n.start(t)
	update(servers("192.0.2.4"), "nameserver 192.0.2.4")
	if err := os.WriteFile(mount, []byte("nameserver 192.0.2.9\n"), 0); err != nil {
		t.Fatal(err)
	}
	update(servers("192.0.2.5"), "nameserver 192.0.2.9")
	if err := os.Truncate(mount, 60<<20); err != nil { // only the beginning of a large file is read
		t.Fatal(err)
	}
	var begin, end runtime.MemStats
	runtime.ReadMemStats(&begin)
	if err := n.UpdateDNS(func(*api.PodSandboxMetadata) *api.DNSConfig { return servers("192.0.2.5") }); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&end)
	if info, err := os.Stat(mount); err != nil || info.Size() != 60<<20 || end.TotalAlloc-begin.TotalAlloc > 8<<20 {
		t.Errorf("%v, %v, %d bytes were allocated", info, err, end.TotalAlloc-begin.TotalAlloc)
	}
	n.removeAll(t)
}

// startIn starts a container in a running sandbox.
func (n *node) startIn(t testing.TB, pod string, cfg *api.PodSandboxConfig, ctr *api.ContainerConfig) string {
	t.Helper()
	ctx := context.Background()
	c, err := n.CreateContainer(ctx, &api.CreateContainerRequest{PodSandboxId: pod, SandboxConfig: cfg, Config: ctr})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.StartContainer(ctx, &api.StartContainerRequest{ContainerId: c.ContainerId}); err != nil {
		t.Fatal(err)
	}
	return c.ContainerId
}

// TestSandboxFilesOfAnEarlierIslet checks sandboxes of an earlier version, whose files are in the run directory itself. The agent adopts
// such a sandbox. It can start containers in the sandbox and remove the sandbox completely.
func TestSandboxFilesOfAnEarlierIslet(t *testing.T) {
	n := newNode(t, 16)
	pod, _ := n.runPod(t, 1, "wait")
	n.stop(t)
	dir := filepath.Join(n.run, "sandboxes", pod)
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hostname", "hosts", "resolv.conf"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("earlier\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shm := filepath.Join(dir, "shm")
	if err := os.Mkdir(shm, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("shm", shm, "tmpfs", 0, "mode=1777,size=64m"); err != nil {
		t.Fatal(err)
	}
	n.start(t)
	if got := n.sandboxState(t, pod); got != api.PodSandboxState_SANDBOX_READY {
		t.Fatalf("after an upgrade the sandbox is %v", got)
	}
	id := n.startIn(t, pod, n.podConfig(1), containerConfig("late", "wait"))
	out, err := n.ExecSync(context.Background(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "read", "/etc/hostname", "room", "/dev/shm"}, Timeout: 60})
	if got := string(out.GetStdout()); err != nil || got != "earlier\n64 dtrwxrwxrwx\n" {
		t.Errorf("got %q, %v", got, err)
	}
	n.removeAll(t) // newNode checks that no resource is left
}
