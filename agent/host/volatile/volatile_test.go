package volatile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// TestMain runs the tests in a separate mount namespace.
func TestMain(m *testing.M) {
	if os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	os.Exit(mountstest.Main(m.Run))
}

const bound = 4 << 20

// world returns the configuration for a host with shared mounts, as systemd sets them up. The agent's directories are on a read-only disk.
func world(t *testing.T) (c Config, state, root string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	top := t.TempDir()
	tmpfs(t, top)
	must(t, unix.Mount("", top, "", unix.MS_SHARED, ""))
	t.Cleanup(func() {
		unix.Mount("", top, "", unix.MS_REC|unix.MS_PRIVATE, "")
		unix.Unmount(top, unix.MNT_DETACH)
	})
	disk := top + "/disk"
	state, root = disk+"/state", disk+"/root"
	must(t, os.MkdirAll(top+"/run", 0o755))
	must(t, os.MkdirAll(disk, 0o755))
	tmpfs(t, disk)
	for _, d := range []string{state + "/layers/1/fs", state + "/dir", state + "/above/layers", root + "/pods/volume"} {
		must(t, os.MkdirAll(d, 0o755))
	}
	for _, f := range []string{state + "/file", state + "/dir/file", state + "/layers/db", state + "/layers/1/record", state + "/above/file", state + "/above/layers/db", root + "/pods/file"} {
		must(t, os.WriteFile(f, []byte("disk"), 0o640))
	}
	must(t, unix.Mknod(state+"/layers/1/fs/whiteout", unix.S_IFCHR, 0))
	for _, kind := range []uintptr{unix.MS_BIND, unix.MS_PRIVATE, unix.MS_SHARED} { // the runtime creates the same mounts
		must(t, unix.Mount(root+"/pods", root+"/pods", "", kind, ""))
	}
	tmpfs(t, root+"/pods/volume")
	must(t, os.WriteFile(root+"/pods/volume/kept", nil, 0o600))
	must(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	dirs := []Dir{{Path: state, Separate: []string{"layers", "above/layers", "none"}}, {Path: root}, {Path: disk + "/missing"}, {Path: top + "/run"}}
	return Config{Dirs: dirs, Run: top + "/run", Bytes: bound}, state, root
}

func tmpfs(t *testing.T, dir string) {
	t.Helper()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func write(t *testing.T, path string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte("memory"), 0o600))
}

// This helper returns the mount points of the layer. It fails if a directory is mounted twice.
func ours(t *testing.T) (points []string) {
	t.Helper()
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		f := strings.Fields(line)
		if strings.Contains(line, " "+Source+" ") {
			if slices.Contains(points, f[4]) {
				t.Errorf("mounted twice: %s", line)
			}
			points = append(points, f[4])
		}
	}
	return points
}

func TestCover(t *testing.T) {
	c, state, root := world(t)
	l, err := MountLayers(c)
	must(t, err)
	if !l.IsNew(state) || !l.IsNew(root) || len(l.Dirs) != 2 || l.Bytes != bound {
		t.Fatalf("covered %+v", l)
	}
	for _, f := range []string{"/file", "/dir/file", "/layers/db", "/layers/1/record", "/above/file", "/above/layers/db"} {
		if got := read(t, state+f); got != "disk" {
			t.Errorf("%s has %q", f, got)
		}
		write(t, state+f)
	}
	must(t, os.Rename(state+"/dir", state+"/moved"))
	write(t, root+"/pods/file")
	write(t, root+"/pods/volume/new")
	if _, err := os.Stat(root + "/pods/volume/kept"); err != nil {
		t.Errorf("a mounted volume is hidden: %v", err)
	}
	if fi, err := os.Stat(state + "/file"); err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	stacks(t, state+"/layers")
	if fi, err := os.Stat(state + "/above"); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}

	// The next start uses the existing layer.
	before := ours(t)
	again, err := MountLayers(c)
	must(t, err)
	if again.IsNew(state) || again.IsNew(root) || again.String() != l.String() || !slices.Equal(ours(t), before) {
		t.Errorf("covered %+v with %q, before %+v with %q", again, ours(t), l, before)
	}
	if got := read(t, state+"/moved/file"); got != "memory" {
		t.Errorf("after a restart %q", got)
	}

	must(t, UnmountLayers(c.Dirs...))
	for _, f := range []string{state + "/file", state + "/dir/file", root + "/pods/file"} {
		if got := read(t, f); got != "disk" {
			t.Errorf("the disk's %s has %q", f, got)
		}
	}
	for _, p := range ours(t) {
		if !strings.HasPrefix(p, filepath.Join(c.Run, Name)) {
			t.Errorf("left: %s", p)
		}
	}
	must(t, UnmountLayers(c.Dirs...))
}

// This helper checks that a container's root file system can be mounted. The root file system is an overlay with lower layers on the disk
// and an upper layer in memory. A whiteout must hide the file in the layer below.
func stacks(t *testing.T, dir string) {
	t.Helper()
	own := dir + "/2"
	for _, d := range []string{"base", "upper", "work", "merged"} {
		must(t, os.MkdirAll(filepath.Join(own, d), 0o755))
	}
	write(t, own+"/base/whiteout")
	write(t, own+"/base/kept")
	must(t, unix.Mount("overlay", own+"/merged", "overlay", 0,
		fmt.Sprintf("lowerdir=%s/1/fs:%s/base,upperdir=%s/upper,workdir=%s/work", dir, own, own, own)))
	defer unix.Unmount(own+"/merged", unix.MNT_DETACH)
	write(t, own+"/merged/new")
	entries, err := os.ReadDir(own + "/merged")
	must(t, err)
	if len(entries) != 2 || entries[0].Name() != "kept" || entries[1].Name() != "new" {
		t.Errorf("the root file system has %v", entries)
	}
}

// TestBound checks that the layer in memory limits the size and the number of the files that pods write.
func TestBound(t *testing.T) {
	c, state, root := world(t)
	_, err := MountLayers(c)
	must(t, err)
	if err := os.WriteFile(root+"/big", make([]byte, 2*bound), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("wrote more than the limit: %v", err)
	}
	if err := os.WriteFile(state+"/more", make([]byte, bound/2), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the limit does not apply to all directories together: %v", err)
	}
	must(t, os.Remove(root+"/big"))
	for i := 0; err == nil; i++ {
		err = os.WriteFile(fmt.Sprint(root, "/", i), nil, 0o600)
		if i > bound/1024 {
			t.Fatal("the number of files is not limited")
		}
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}

// TestHalfDone checks that MountLayers succeeds after an earlier call failed before it mounted the layer.
func TestHalfDone(t *testing.T) {
	c, state, root := world(t)
	table := read(t, "/proc/self/mountinfo")
	broken := c
	broken.Dirs = []Dir{{Path: state, Separate: []string{"file"}}} // file is not a directory, so the call fails late
	if _, err := MountLayers(broken); err == nil || !strings.Contains(err.Error(), state+" is on a disk that takes no writes") ||
		!strings.Contains(err.Error(), "remount,rw") {
		t.Fatalf("%v", err)
	}
	if now := read(t, "/proc/self/mountinfo"); !strings.HasPrefix(now, table) || strings.Contains(strings.TrimPrefix(now, table), state+" ") {
		t.Errorf("mounted\n%s\nbefore\n%s", now, table)
	}
	l, err := MountLayers(c)
	must(t, err)
	if !l.IsNew(state) || !l.IsNew(root) {
		t.Errorf("%+v", l)
	}
	write(t, state+"/file")
}

// TestWritable checks that MountLayers mounts nothing over a writable disk.
func TestWritable(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/state", 0o755))
	l, err := MountLayers(Config{Dirs: []Dir{{Path: dir + "/state"}}, Run: dir})
	if l != nil || err != nil || l.IsNew(dir+"/state") {
		t.Errorf("%v, %v", l, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("made %v, %v", entries, err)
	}
}

// TestPlaces checks that the overlay does not look up a separate directory on the disk, which may not return it. The directories above it
// are looked up unless the disk does not return them.
func TestPlaces(t *testing.T) {
	c, state, _ := world(t)
	_, err := MountLayers(c)
	must(t, err)
	for dir, want := range map[string]int{"layers": 0, "above/layers": 0, "above": 2} {
		unix.Unmount(filepath.Join(state, dir), unix.MNT_DETACH)
		if entries, err := os.ReadDir(filepath.Join(state, dir)); err != nil || len(entries) != want {
			t.Errorf("%s has %v, %v", dir, entries, err)
		}
	}
	upper := filepath.Join(c.Run, "upper")
	seed := newSeeder()
	seed.stat = func(path string) (fs.FileInfo, error) { return nil, unix.EIO }
	must(t, os.Mkdir(upper, 0o700))
	tmpfs(t, upper)
	must(t, seed.makePlace(state, upper, "above/layers"))
	for _, dir := range []string{"above", "above/layers"} {
		value := make([]byte, 1)
		if _, err := unix.Getxattr(filepath.Join(upper, dir), "trusted.overlay.opaque", value); err != nil || value[0] != 'y' {
			t.Errorf("%s: %q, %v", dir, value, err)
		}
	}
	if !slices.Equal(seed.unread, []string{state + "/above"}) {
		t.Errorf("unread: %q", seed.unread)
	}
}
