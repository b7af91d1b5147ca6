package daemon

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/mounts"
)

// newStorage returns the configuration of a closed storage with one layer, and the directories of three containers. Two of them run.
func newStorage(t *testing.T) (c Config, layer string) {
	t.Helper()
	c = overlayConfig(t)
	c.Containers = t.TempDir()
	for _, name := range []string{"one", "two", "ended"} {
		var paths []any
		for _, dir := range []string{"lower", "upper", "work", "merged"} {
			path := filepath.Join(c.Containers, name, dir)
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		if name == "ended" {
			continue
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", paths[:3]...)
		if err := unix.Mount("overlay", paths[3].(string), "overlay", 0, options); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Unmount(paths[3].(string), unix.MNT_DETACH) })
	}
	d := start(t, c)
	addLayer(t, d, "layer")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	layer = filepath.Join(c.Root, Overlay, snapshotsDir, "1", "fs")
	if err := os.WriteFile(filepath.Join(layer, "file"), []byte("a file of a running container"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, layer
}

func addLayer(t *testing.T, d *Daemon, name string) {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	sn := d.Client().SnapshotService(d.Snapshotter())
	root := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": "true"})
	if _, err := sn.Prepare(ctx, name+"-writable", "", root); err != nil {
		t.Fatal(err)
	}
	if err := sn.Commit(ctx, name, name+"-writable", root); err != nil {
		t.Fatal(err)
	}
}

// collectNow runs the garbage collector, and waits until it has also removed the layers that were set aside.
func collectNow(t *testing.T, d *Daemon) {
	t.Helper()
	ctx := namespaces.WithNamespace(t.Context(), Namespace)
	l, err := d.Client().LeasesService().Create(ctx, leases.WithRandomID())
	if err == nil {
		err = d.Client().LeasesService().Delete(ctx, l, leases.SynchronousDelete)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// asideFile returns the path of a file of a running container below the layers that were set aside, or "".
func asideFile(c Config) string {
	all, _ := filepath.Glob(filepath.Join(c.Root, Overlay, snapshotsDir+asideSuffix+"*", "1", "fs", "file"))
	return strings.Join(all, " ")
}

func overwrite(t *testing.T, path string, change func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDamagedStorage damages the databases. Start must succeed each time. The layers must remain until the containers of that time are
// removed, although the garbage collector runs.
func TestDamagedStorage(t *testing.T) {
	page := os.Getpagesize()
	noTree := func(b []byte) []byte { clear(b[2*page:]); return b }
	noMeta := func(b []byte) []byte { clear(b[:2*page]); return b }
	empty := func([]byte) []byte { return nil }
	path := filepath.Join(t.TempDir(), "unused.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	unused, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	noRecords := func([]byte) []byte { return unused }
	for _, test := range []struct {
		name, file string
		change     func(b []byte) []byte // nil: the file is removed
	}{
		{"pages", metaFile, noTree},
		{"meta pages", metaFile, noMeta},
		{"truncated", metaFile, func(b []byte) []byte { return b[:page+1] }},
		{"not a database", metaFile, func(b []byte) []byte { return []byte("no") }},
		{"empty", metaFile, empty},
		{"missing", metaFile, nil},
		{"without records", metaFile, noRecords},
		{"without records, of the snapshotter", Overlay + "/" + namesFile, noRecords},
		{"empty, of the snapshotter", Overlay + "/" + namesFile, empty},
		{"missing, of the snapshotter", Overlay + "/" + namesFile, nil},
		{"pages of the snapshotter", Overlay + "/" + namesFile, noTree},
		{"meta pages of the snapshotter", Overlay + "/" + namesFile, noMeta},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := newStorage(t)
			if err := os.Mkdir(filepath.Join(c.Root, Overlay, snapshotsDir, "2"), 0o700); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(c.Root, test.file)
			if test.change != nil {
				overwrite(t, path, test.change)
			} else if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			d := start(t, c)
			if !strings.Contains(d.Damage(), path) {
				t.Errorf("the message is %q", d.Damage())
			}
			addLayer(t, d, "layer")
			collectNow(t, d)
			if asideFile(c) == "" {
				t.Fatal("a layer of a running container was removed")
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}

			d = start(t, c) // the containers continue to run
			if !strings.Contains(d.Damage(), path) {
				t.Errorf("nobody has recorded the damage, and after the next start the message is %q", d.Damage())
			}
			if err := errors.Join(d.ForgetDamage(), d.ForgetDamage(), d.Close()); err != nil {
				t.Fatal(err)
			}
			d = start(t, c)
			defer d.Close()
			if d.Damage() != "" {
				t.Errorf("after the next start: %s", d.Damage())
			}
			for _, name := range []string{"one", "two"} {
				collectNow(t, d)
				if asideFile(c) == "" {
					t.Fatalf("container %s exists, and its layer was removed", name)
				}
				dir := filepath.Join(c.Containers, name)
				if err := mounts.RemoveMounted(dir, []string{filepath.Join(dir, "merged")}); err != nil {
					t.Fatal(err)
				}
			}
			collectNow(t, d)
			if left := d.collector.disk.listAside(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			if _, err := d.Client().SnapshotService(Overlay).Stat(namespaces.WithNamespace(t.Context(), Namespace), "layer"); err != nil {
				t.Errorf("the new layer: %v", err)
			}
		})
	}
}

// TestWithoutLayers checks storages that have lost a database, and whose layers are not affected: there are none, or nobody knows them.
func TestWithoutLayers(t *testing.T) {
	for _, lost := range []string{"", metaFile} {
		c := overlayConfig(t)
		start(t, c).Close() // has no database of the snapshotter
		if lost != "" {
			if err := os.Truncate(filepath.Join(c.Root, lost), 0); err != nil {
				t.Fatal(err)
			}
		}
		d := start(t, c)
		if d.Damage() != "" {
			t.Errorf("empty %q: %s", lost, d.Damage())
		}
		d.Close()
	}
}

// TestInterruptedReplacement ends the replacement of the storage after each step. The next start must complete it, keep the layers, and
// report the damage until it is forgotten.
func TestInterruptedReplacement(t *testing.T) {
	for _, damagedFile := range []string{metaFile, Overlay + "/" + namesFile} {
		for steps := range 8 {
			c, layer := newStorage(t)
			overwrite(t, filepath.Join(c.Root, damagedFile), func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) })
			disk := storage{c.Root, filepath.Join(c.Root, Overlay), c.Containers}
			aside := filepath.Dir(filepath.Dir(layer)) + asideSuffix + "20000101T000000Z" + bootSuffix()
			move := func(path, to string) func() error { return func() error { return os.Rename(path, to) } }
			meta, names := filepath.Join(c.Root, metaFile), filepath.Join(c.Root, Overlay, namesFile)
			for _, step := range []func() error{
				func() error { return os.WriteFile(disk.beginMarker(), []byte("the first message"), 0o600) },
				move(meta, meta+asideSuffix+"x"),
				move(names, names+asideSuffix+"x"),
				func() error { return os.WriteFile(aside+usersSuffix, disk.listUsers(), 0o600) },
				move(filepath.Dir(filepath.Dir(layer)), aside),
				move(disk.beginMarker(), disk.marker()),
				func() error { return os.WriteFile(meta, nil, 0o600) }, // bbolt creates a database
			}[:steps] {
				if err := step(); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				d := start(t, c)
				if again := steps < 2; d.Damage() == "" || d.Damage() == "the first message" == again {
					t.Errorf("%s, %d steps: the message is %q", damagedFile, steps, d.Damage())
				}
				addLayer(t, d, rand.Text())
				collectNow(t, d)
				if asideFile(c) == "" {
					t.Errorf("%s, %d steps: a layer of a running container was removed", damagedFile, steps)
				}
				d.Close()
			}
		}
	}
}

// TestReplacementDidNotHappen checks a replacement that ended before it renamed meta.db. If the databases can be read at the next start,
// nothing is reported, except an earlier replacement that nobody has recorded yet.
func TestReplacementDidNotHappen(t *testing.T) {
	c, layer := newStorage(t)
	disk := storage{c.Root, filepath.Join(c.Root, Overlay), c.Containers}
	for _, earlier := range []string{"", "an earlier message"} {
		if err := os.WriteFile(disk.beginMarker(), []byte("a message"), 0o600); err != nil {
			t.Fatal(err)
		}
		if earlier != "" {
			if err := os.WriteFile(disk.marker(), []byte(earlier), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d := start(t, c)
		if d.Damage() != earlier {
			t.Errorf("the message is %q, want %q", d.Damage(), earlier)
		}
		if err := d.Close(); err != nil || exists(disk.beginMarker()) || !exists(layer) {
			t.Errorf("%v; the begin is left: %t, the layer: %t", err, exists(disk.beginMarker()), exists(layer))
		}
	}
}

// TestReplacementIsReported checks a complete replacement after which nothing is left of the damaged storage: the databases were lost, and
// the layers were removed. It is reported nevertheless, until it is forgotten.
func TestReplacementIsReported(t *testing.T) {
	c, _ := newStorage(t)
	for _, lost := range []string{filepath.Join(c.Root, metaFile), filepath.Join(c.Root, Overlay, namesFile)} {
		if err := os.Remove(lost); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "two"} {
		if err := unix.Unmount(filepath.Join(c.Containers, name, "merged"), 0); err != nil {
			t.Fatal(err)
		}
	}
	first := ""
	for n := range 3 {
		d := start(t, c)
		if n == 0 {
			first = d.Damage()
		}
		if d.Damage() == "" || d.Damage() != first {
			t.Errorf("start %d: the message is %q", n, d.Damage())
		}
		collectNow(t, d)
		if left := d.collector.disk.listAside(); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMarkerCannotBeRead checks a record of a replacement that says nothing, or too much. The damage is reported nevertheless.
func TestMarkerCannotBeRead(t *testing.T) {
	c := overlayConfig(t)
	for _, message := range []string{"", strings.Repeat("x", maxMessage+1), "hostile \x1b[2J"} {
		disk := storage{c.Root, filepath.Join(c.Root, Overlay), c.Containers}
		if err := os.WriteFile(disk.marker(), []byte(message), 0o600); err != nil {
			t.Fatal(err)
		}
		d := start(t, c)
		if got := d.Damage(); got == "" || len(got) > maxMessage || strings.Contains(got, "\x1b") {
			t.Errorf("the message is %q", got)
		}
		if err := errors.Join(d.ForgetDamage(), d.Close()); err != nil || readMessage(disk.marker()) != "" {
			t.Errorf("the message remains (%v)", err)
		}
	}
}

// TestStorageInUse checks that a storage which another agent uses is never set aside, even if it seems to be damaged.
func TestStorageInUse(t *testing.T) {
	c, layer := newStorage(t)
	d := start(t, c)
	defer d.Close()
	if err := os.Truncate(filepath.Join(c.Root, metaFile), 100); err != nil {
		t.Fatal(err)
	}
	disk := storage{c.Root, filepath.Join(c.Root, Overlay), c.Containers}
	if message, err := disk.setAsideDamaged(); message != "" || err != nil || !exists(layer) {
		t.Errorf("%q, %v", message, err)
	}
}

// TestFaultWhileOpening checks a database whose inode the disk cannot read. A fault that does not occur again does not count.
func TestFaultWhileOpening(t *testing.T) {
	path := filepath.Join(t.TempDir(), metaFile)
	if err := os.WriteFile(path, newDatabase(t, true, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	for faults, want := range []error{nil, nil, errDamaged} {
		synctest.Test(t, func(t *testing.T) {
			left := faults
			var f *os.File
			err := checkLocked(path, func(path string) (*os.File, error) {
				if left--; left >= 0 {
					return nil, unix.EIO
				}
				return os.Open(path)
			}, &f)
			if !errors.Is(err, want) || (f != nil) != (want == nil) {
				t.Errorf("%d faults: %v, open: %t", faults, err, f != nil)
			}
			f.Close()
		})
	}
}

// TestReplacementOnFullDisk checks that the storage is also set aside if the disk has no space for the message.
func TestReplacementOnFullDisk(t *testing.T) {
	root := t.TempDir()
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(root, unix.MNT_DETACH) })
	disk := storage{root, filepath.Join(root, Overlay), t.TempDir()}
	layer := filepath.Join(disk.dir, snapshotsDir, "1")
	if err := errors.Join(os.MkdirAll(layer, 0o700), os.WriteFile(filepath.Join(root, metaFile), []byte("no"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "full"), make([]byte, 2<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	message, err := disk.setAsideDamaged()
	if !strings.Contains(message, metaFile) || err != nil || exists(layer) || readMessage(disk.marker()) == "" {
		t.Errorf("%q, %v; layer: %t, recorded: %q", message, err, exists(layer), readMessage(disk.marker()))
	}
}
