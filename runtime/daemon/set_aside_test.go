package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/mounts"
)

// TestLayersWithoutUsers checks layers that were set aside while no container ran, as at the first start after a boot. They are removed,
// although the directories of ended containers exist.
func TestLayersWithoutUsers(t *testing.T) {
	c, _ := newStorage(t)
	for _, name := range []string{"one", "two"} {
		if err := unix.Unmount(filepath.Join(c.Containers, name, "merged"), 0); err != nil {
			t.Fatal(err)
		}
	}
	overwrite(t, filepath.Join(c.Root, metaFile), func(b []byte) []byte { return []byte("no") })
	d := start(t, c)
	defer d.Close()
	collectNow(t, d)
	if left := d.collector.disk.listAside(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestLayersOfAnEarlierBoot checks layers that were set aside before a reboot. No container uses them, so they are removed.
func TestLayersOfAnEarlierBoot(t *testing.T) {
	c, _ := newStorage(t)
	disk := storage{c.Root, filepath.Join(c.Root, Overlay), c.Containers}
	if err := disk.setAside(disk.newSuffix()); err != nil {
		t.Fatal(err)
	}
	for _, path := range disk.listAside() {
		if err := os.Rename(path, strings.ReplaceAll(path, bootSuffix(), ".an-earlier-boot")); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, c)
	defer d.Close()
	collectNow(t, d)
	if left := disk.listAside(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestFindMounted checks the search for running containers in /proc. Processes may end meanwhile. If the mount table of a running process
// cannot be read, the search must fail, because its container would lose its layers.
func TestFindMounted(t *testing.T) {
	const table = "36 35 98:0 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/run/%s/upper,workdir=/run/%[1]s/work\n"
	proc := t.TempDir()
	add := func(pid, namespace, root, mounted string) string {
		t.Helper()
		dir := filepath.Join(proc, pid)
		err := os.MkdirAll(filepath.Join(dir, "ns"), 0o700)
		if err == nil && namespace != "" {
			err = errors.Join(os.Symlink(namespace, filepath.Join(dir, "ns/mnt")), os.Symlink(root, filepath.Join(dir, "root")))
		}
		if err == nil && mounted != "" {
			err = os.WriteFile(filepath.Join(dir, "mountinfo"), fmt.Appendf(nil, table, mounted), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	unreadable := func(pid string) { // reading the link fails with EINVAL
		t.Helper()
		if err := os.WriteFile(filepath.Join(add(pid, "", "", ""), "ns/mnt"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	add("sys", "", "", "") // no process
	unreadable("1")
	add("10", "mnt:[1]", "/", "other")   // of the host
	add("11", "mnt:[2]", "/sub", "none") // a process of a container that has changed its root directory
	add("12", "mnt:[2]", "/", "one")     // another process of the container
	add("13", "", "", "")                // has ended
	add("14", "mnt:[3]", "/", "")        // has ended later
	names := []string{"one", "two"}
	if found, err := findMounted(proc, slices.Clone(names)); err != nil || !slices.Equal(found, []string{"one"}) {
		t.Errorf("found %q, %v", found, err)
	}
	unreadable("15")
	if found, err := findMounted(proc, slices.Clone(names)); err == nil {
		t.Errorf("a process cannot be examined: found %q", found)
	}
}

// TestAsideIsRemovedLater checks layers whose last container is removed without a deletion in the storage. A timer removes them.
func TestAsideIsRemovedLater(t *testing.T) {
	c, _ := newStorage(t)
	disk := storage{c.Root, filepath.Join(c.Root, Overlay), c.Containers}
	if err := disk.setAside(disk.newSuffix()); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		g := &collector{disk: disk, log: c.Log, stopSignal: make(chan struct{}), ended: make(chan struct{})}
		go g.run()
		for _, name := range []string{"one", "two"} {
			time.Sleep(10 * asideInterval)
			if asideFile(c) == "" {
				t.Fatalf("container %s exists, and its layer was removed", name)
			}
			dir := filepath.Join(c.Containers, name)
			if err := mounts.RemoveMounted(dir, []string{filepath.Join(dir, "merged")}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * asideInterval)
		g.stop()
	})
	if left := disk.listAside(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestCopiesAreLimited damages the storage often. Only the last copies of the databases are kept.
func TestCopiesAreLimited(t *testing.T) {
	c, _ := newStorage(t)
	for range keepAside + 2 {
		overwrite(t, filepath.Join(c.Root, metaFile), func(b []byte) []byte { return []byte("no") })
		d := start(t, c)
		addLayer(t, d, "layer")
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{metaFile, Overlay + "/" + namesFile} {
		if n := len(listPrefix(filepath.Join(c.Root, path+asideSuffix))); n != keepAside {
			t.Errorf("%s has %d copies", path, n)
		}
	}
}
