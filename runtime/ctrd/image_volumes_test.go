package ctrd_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/daemon"
)

// importDeclaring imports an image with VOLUMEs. It returns the name of the image.
func (n *node) importDeclaring(t testing.TB, shape string, volumes []string, entries ...crisuite.Entry) string {
	t.Helper()
	declared := map[string]any{}
	for _, v := range volumes {
		declared[v] = struct{}{}
	}
	archive := crisuite.ConfiguredImage(t, programs.prog, shape, map[string]any{"Volumes": declared}, entries...)
	if _, err := n.images.ImportArchive(context.Background(), bytes.NewReader(archive), shape+".tar", nil); err != nil {
		t.Fatal(err)
	}
	return crisuite.HostileRef(shape)
}

func directory(name string, mode int64, uid, gid int) crisuite.Entry {
	return crisuite.Entry{Header: tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeDir, Uid: uid, Gid: gid}}
}

func text(name, data string, uid, gid int) crisuite.Entry {
	return crisuite.Entry{Header: tar.Header{Name: name, Mode: 0o640, Typeflag: tar.TypeReg, Uid: uid, Gid: gid}, Data: data}
}

func symlink(name, target string) crisuite.Entry {
	return crisuite.Entry{Header: tar.Header{Name: name, Linkname: target, Mode: 0o777, Typeflag: tar.TypeSymlink}}
}

// TestImageVolumes checks that a container gets a directory for each VOLUME of its image. The directory contains the files of the image,
// but is not part of the overlay. It is writable even if the root file system is read-only. The next container gets a new directory.
func TestImageVolumes(t *testing.T) {
	for _, snapshotter := range []string{daemon.Overlay, daemon.Native} {
		t.Run(snapshotter, func(t *testing.T) {
			n := newNode(t, 4)
			n.stop(t)
			n.snapshotter = snapshotter
			n.start(t)
			ref := n.importDeclaring(t, "volumes", []string{"/none", "/var/run/deep/", "relative", "/full", "/full/sub"},
				directory("full/", 0o1750, 1234, 77), text("full/file", "image", 1234, 77), directory("full/sub/", 0o755, 0, 0),
				text("full/sub/under", "sub", 0, 0),
				directory("run/", 0o755, 0, 0), directory("var/", 0o755, 0, 0), symlink("var/run", "/run"))
			cfg := n.podConfig(1)
			pod, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
			if err != nil {
				t.Fatal(err)
			}
			for _, attempt := range []uint32{0, 1} {
				c := containerConfig("main", "owner", "/full", "owner", "/full/file", "owner", "/none", "room", "/full", "read", "/full/file",
					"read", "/full/sub/under",
					"put", "/none/new", "x", "put", "/run/deep/new", "x", "put", "/relative/new", "x", "put", "/full/file", "changed", "put",
					"/full/sub/new", "x", "put", "/new", "x",
					"read", "/proc/self/mountinfo", "wait")
				c.Image.Image, c.Metadata.Attempt, c.LogPath = ref, attempt, fmt.Sprint(attempt, ".log")
				c.Linux.SecurityContext.ReadonlyRootfs = true
				id := n.startIn(t, pod.PodSandboxId, cfg, c)
				var output string
				eventually(t, "it waits", func() bool {
					b, _ := os.ReadFile(filepath.Join(cfg.LogDirectory, c.LogPath))
					output = string(b)
					return strings.Contains(output, "waiting")
				})
				var lines, types []string
				for line := range strings.Lines(output) {
					line = strings.TrimSpace(strings.SplitN(line, " ", 4)[3])
					before, after, mount := strings.Cut(line, " - ")
					if !mount {
						lines = append(lines, line)
						continue
					}
					switch f := strings.Fields(before); f[4] {
					case "/none", "/run/deep", "/relative", "/full", "/full/sub":
						types = append(types, f[4])
						if strings.HasPrefix(after, "overlay") {
							t.Errorf("%s is on an overlay", f[4])
						}
					}
				}
				if len(types) != 5 {
					t.Errorf("mounts at %v", types)
				}
				want := "1234 77\n1234 77\n0 0\n(room)\nimage\nsub\nput: <nil>\nput: <nil>\nput: <nil>\nput: <nil>\nput: <nil>\nput: open /new: read-only file system\nwaiting"
				if lines[3] = "(room)"; strings.Join(lines, "\n") != want {
					t.Errorf("attempt %d printed\n%s\nwant\n%s", attempt, strings.Join(lines, "\n"), want)
				}
				if !strings.Contains(output, "dtrwxr-x---") {
					t.Errorf("the mode of the volume is not the image's: %s", output)
				}
				if st := n.status(t, id); len(st.Mounts) != 0 {
					t.Errorf("the status has mounts that were not requested: %v", st.Mounts)
				}
			}
		})
	}
}

// TestImageVolumesUsers checks the image volumes of a pod with a user namespace. The directories and the copied files belong to users of
// the pod.
func TestImageVolumesUsers(t *testing.T) {
	n := newUsersNode(t, 4)
	ref := n.importDeclaring(t, "volumes", []string{"/none", "/full"}, directory("full/", 0o750, 1234, 77), text("full/file", "image", 1234, 77))
	cfg, c := n.usersConfig(7, "main", "print", "ran", "owner", "/none", "owner", "/full", "owner", "/full/file", "put", "/none/new",
		"x", "owner", "/none/new")
	c.Image.Image = ref
	pod, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	output := n.tryContainer(t, pod.PodSandboxId, cfg, c)
	var got []string
	for line := range strings.Lines(output) {
		got = append(got, strings.TrimSpace(strings.SplitN(line, " ", 4)[3]))
	}
	if want := "ran|0 0|1234 77|1234 77|put: <nil>|0 0"; strings.Join(got, "|") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestImageVolumesAndMounts checks a pod with mounts at, above or below a VOLUME of its image. The mounts take precedence, however their
// paths are spelled.
func TestImageVolumesAndMounts(t *testing.T) {
	n := newNode(t, 4)
	ref := n.importDeclaring(t, "volumes", []string{"/data", "/data/sub", "/var/run/x", "/lib/pg/data"}, directory("run/", 0o755, 0, 0), directory("var/", 0o755, 0, 0), symlink("var/run", "/run"))
	own := filepath.Join(n.dir, "own")
	if err := os.MkdirAll(filepath.Join(own, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := n.podConfig(1)
	pod, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ mount, file, lands string }{
		{"/data", "/data/1", "1"}, {"/data", "/data/sub/2", ""}, {"/run/x", "/run/x/3", "3"}, {"/var/run/x/", "/run/x/4", "4"}, {"/lib/pg", "/lib/pg/data/5", "data/5"}, {"/data/mine", "/data/mine/6", "6"},
	} {
		if c.lands == "" {
			if err := os.MkdirAll(filepath.Join(own, "sub"), 0o755); err != nil {
				t.Fatal(err)
			}
			c.lands = "sub/2"
		}
		ctr := containerConfig(fmt.Sprint("main", i), "print", "ran", "put", c.file, "pod")
		ctr.Image.Image = ref
		ctr.Mounts = []*api.Mount{{ContainerPath: c.mount, HostPath: own}}
		output := n.tryContainer(t, pod.PodSandboxId, cfg, ctr)
		if b, err := os.ReadFile(filepath.Join(own, c.lands)); err != nil || string(b) != "pod" {
			t.Errorf("%s with a mount at %s did not land in the pod's volume: %v, %s", c.file, c.mount, err, output)
		}
	}
}

// TestImageVolumesCounted checks that data in image volumes counts as part of the container's writable layer. A restart of the agent does
// not change this. The data is deleted together with the layer.
func TestImageVolumesCounted(t *testing.T) {
	n := newNode(t, 4)
	ref := n.importDeclaring(t, "volumes", []string{"/data"}, directory("data/", 0o755, 0, 0), text("data/image", strings.Repeat("x", 1<<20), 0, 0))
	c := containerConfig("main", "wait", "wait")
	c.Image.Image = ref
	_, id := n.runContainer(t, 1, c)
	dir := filepath.Join(n.dir, "state", "containers", id, "volumes")
	if out, err := n.ExecSync(t.Context(), &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "put", "/data/file", strings.Repeat("x", 100_000)}, Timeout: 20}); err != nil || string(out.Stdout) != "put: <nil>\n" {
		t.Fatalf("%v %v", out, err)
	}
	for range 2 {
		layer, whole, err := n.WholeLayer(t.Context(), id)
		if err != nil || !whole || layer.UsedBytes.Value < 1<<20+100_000 || layer.UsedBytes.Value > 2<<20 {
			t.Errorf("it uses %v, %t, %v", layer, whole, err)
		}
		n.stop(t)
		n.start(t)
	}
	if _, err := n.StopContainer(t.Context(), &api.StopContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	if err := n.DropLayers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
}

// TestImageVolumesHostile checks VOLUMEs with paths of the runtime or the host, VOLUMEs whose path is a file, and too many VOLUMEs. The
// container runs without the volume or fails with an error. No volume is mounted in the /proc of the runtime.
func TestImageVolumesHostile(t *testing.T) {
	n := newNode(t, 4)
	cfg := n.podConfig(1)
	pod, err := n.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	out := strings.Repeat("../", 12) + n.dir
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprint("/v", i))
	}
	long := "/" + strings.Repeat("x", 4095)
	for i, c := range []struct {
		volumes []string
		entries []crisuite.Entry
		err     string
	}{
		{volumes: []string{"/", "/proc", "/proc/self/attr", "/sys/fs/cgroup", "/dev", "/dev/shm", "/etc/hosts", "/../../proc/sys"}},
		{volumes: []string{"/a"}, entries: []crisuite.Entry{symlink("a", "/proc/self/attr")}},
		{volumes: []string{"/a/self/attr"}, entries: []crisuite.Entry{symlink("a", "proc")}},
		{volumes: []string{"/a"}, entries: []crisuite.Entry{symlink("a", "b/c"), symlink("b", "/proc/sys"), directory("x/", 0o755, 0, 0)}},
		{volumes: []string{"/a"}, entries: []crisuite.Entry{symlink("a", "/proc/self/attr"), directory("proc/", 0o755, 0, 0), directory("proc/self/", 0o755, 0, 0), symlink("proc/self/attr", "/x"), directory("x/", 0o755, 0, 0)}},
		{volumes: []string{"/a"}, entries: []crisuite.Entry{symlink("a", out)}},
		{volumes: []string{"/a", "/b"}, entries: []crisuite.Entry{symlink("a", "/x"), symlink("b", "x"), directory("x/", 0o755, 0, 0)}},
		{volumes: []string{"/a"}, entries: []crisuite.Entry{symlink("a", "/a")}, err: "volume /a of the image"},
		{volumes: []string{"/a"}, entries: []crisuite.Entry{text("a", "file", 0, 0)}, err: "volume /a of the image"},
		{volumes: []string{"/a/b"}, entries: []crisuite.Entry{{Header: tar.Header{Name: "a", Mode: 0o644, Typeflag: tar.TypeFifo}}}, err: "volume /a/b of the image"},
		{volumes: many, err: "/ 65 volumes"},
		{volumes: []string{long}, err: "/xxx"},
		{volumes: []string{strings.Repeat("/x", 65)}, err: "/x/x"},
	} {
		ref := n.importDeclaring(t, fmt.Sprint("hostile", i), c.volumes, c.entries...)
		ctr := containerConfig(fmt.Sprint("main", i), "print", "ran", "read", "/proc/self/mountinfo", "read", "/proc/self/attr/current",
			"read", "/proc/sys/kernel/hostname")
		ctr.Image.Image = ref
		ctr.Linux.SecurityContext.ReadonlyPaths = []string{"/proc/sys"}
		if c.err != "" {
			_, err := n.CreateContainer(t.Context(), &api.CreateContainerRequest{PodSandboxId: pod.PodSandboxId, SandboxConfig: cfg, Config: ctr})
			if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(c.err, "/ ")) {
				t.Errorf("%v: %v", c.volumes, err)
			}
			continue
		}
		output := n.tryContainer(t, pod.PodSandboxId, cfg, ctr)
		if strings.HasPrefix(output, "error") {
			t.Errorf("%.200q with %v: %s", c.volumes, c.entries, output)
		}
		places := map[string]int{}
		for line := range strings.Lines(output) {
			f := strings.Fields(line)
			if len(f) < 9 {
				continue
			}
			root, at := f[6], f[7]
			places[at]++
			if strings.Contains(root, "/volumes/") && (at == "/" || strings.HasPrefix(at, "/proc") || strings.HasPrefix(at, "/sys") ||
				strings.HasPrefix(at, "/dev") || strings.HasPrefix(at, "/etc")) {
				t.Errorf("%v: a volume of the image is mounted at %s: %s", c.volumes, at, line)
			}
		}
		if places["/x"] > 1 {
			t.Errorf("two volumes are mounted at the same path: %s", output)
		}
	}
	if left := subdirs(filepath.Join(n.dir, "state", "containers")); len(left) > 7 {
		t.Errorf("a rejected container left its directory: %v", left)
	}
}
