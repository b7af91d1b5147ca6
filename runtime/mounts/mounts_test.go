package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// TestMain runs the tests in a new mount namespace.
func TestMain(m *testing.M) {
	os.Exit(mountstest.Main(m.Run))
}

// newHost mounts a shared file system, like the root file system of a host with systemd. It returns two directories of this file system.
// The first directory contains mounts of the administrator. The second directory belongs to islet.
func newHost(t *testing.T) (host, own string) {
	t.Helper()
	root := t.TempDir()
	tmpfs(t, root)
	must(t, unix.Mount("", root, "", unix.MS_SHARED, ""))
	t.Cleanup(func() {
		unix.Mount("", root, "", unix.MS_REC|unix.MS_PRIVATE, "")
		unix.Unmount(root, unix.MNT_DETACH)
	})
	host, own = filepath.Join(root, "host"), filepath.Join(root, "own")
	for _, d := range []string{host + "/data/disk", own} {
		must(t, os.MkdirAll(d, 0o755))
	}
	tmpfs(t, host)
	must(t, os.MkdirAll(host+"/data/disk", 0o755))
	tmpfs(t, host+"/data/disk")
	must(t, os.WriteFile(host+"/data/disk/kept", nil, 0o644))
	return host, own
}

func tmpfs(t *testing.T, dir string) {
	t.Helper()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
}

func bind(t *testing.T, from, to string, flags uintptr) {
	t.Helper()
	must(t, os.MkdirAll(to, 0o755))
	must(t, unix.Mount(from, to, "", unix.MS_BIND|flags, ""))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// table returns the mounts of the namespace, except those of other tests. The kernel unmounts such a mount, which this namespace has
// inherited, when the other test removes its directory.
func table(t *testing.T, root string) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var all []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if !strings.HasPrefix(f[4], os.TempDir()+"/") || strings.HasPrefix(f[4], root) {
			all = append(all, f[3]+" at "+f[4])
		}
	}
	slices.Sort(all)
	return all
}

func checkHost(t *testing.T, host string) {
	t.Helper()
	if _, err := os.Stat(host + "/data/disk/kept"); err != nil {
		t.Errorf("the file system of the host was unmounted: %v", err)
	}
}

// TestDetachKeepsTheHost checks bind mounts of the host's shared mounts. DetachBelow unmounts them and does not change the mounts of the
// host.
func TestDetachKeepsTheHost(t *testing.T) {
	for _, c := range []struct {
		name  string
		mount func(t *testing.T, host, own string)
	}{
		{"a plain bind", func(t *testing.T, host, own string) { bind(t, host+"/data", own+"/v", 0) }},
		{"a recursive bind", func(t *testing.T, host, own string) { bind(t, host+"/data", own+"/v", unix.MS_REC) }},
		{"mounted by the host later", func(t *testing.T, host, own string) {
			bind(t, host+"/data", own+"/v", 0)
			must(t, os.Mkdir(host+"/data/later", 0o755))
			tmpfs(t, host+"/data/later")
		}},
		{"mounted by a container", func(t *testing.T, host, own string) {
			bind(t, host+"/data", own+"/v", unix.MS_REC)
			must(t, os.Mkdir(own+"/v/disk/inner", 0o755))
			tmpfs(t, own+"/v/disk/inner")
		}},
		{"stacked mounts", func(t *testing.T, host, own string) {
			must(t, os.Mkdir(own+"/v", 0o755))
			tmpfs(t, own+"/v")
			bind(t, host+"/data", own+"/v", unix.MS_REC)
		}},
		{"a slave whose source the host mounted over", func(t *testing.T, host, own string) {
			bind(t, host+"/data", own+"/v", 0)
			must(t, unix.Mount("", own+"/v", "", unix.MS_SLAVE, ""))
			must(t, os.Mkdir(host+"/aside", 0o755))
			must(t, unix.Mount(host+"/data", host+"/aside", "", unix.MS_BIND|unix.MS_REC, ""))
			tmpfs(t, host+"/data")
			must(t, os.MkdirAll(host+"/data/disk", 0o755))
			must(t, os.WriteFile(host+"/data/disk/kept", nil, 0o644))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, own := newHost(t)
			c.mount(t, host, own)
			before := slices.DeleteFunc(table(t, filepath.Dir(host)), func(m string) bool { return strings.Contains(m, own+"/v") })
			if b, err := ListBelow(own); err != nil || len(b) == 0 {
				t.Fatalf("below: %v, %v", b, err)
			}
			must(t, DetachBelow(own))
			checkHost(t, host)
			if after := table(t, filepath.Dir(host)); !slices.Equal(after, before) {
				t.Errorf("mounts before\n%s\nand after\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
			}
			must(t, RemoveAll(own))
		})
	}
}

// TestAt checks that FindContaining returns the topmost mount that contains a path.
func TestAt(t *testing.T) {
	_, own := newHost(t)
	must(t, os.Mkdir(own+"/v", 0o755))
	below, err := FindContaining(own + "/v")
	must(t, err)
	for _, source := range []string{"first", "second"} {
		must(t, unix.Mount(source, own+"/v", "tmpfs", 0, "size=1m"))
		m, err := FindContaining(own + "/v")
		must(t, err)
		if m.Source != source || m.Mountpoint != own+"/v" || below.Mountpoint != filepath.Dir(own) {
			t.Errorf("%s is in %+v, was in %+v", own, m, below)
		}
	}
	if _, err := FindContaining(own + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestTableOfPaths checks FindTopmost and MountOf. Both only read the mount table.
func TestTableOfPaths(t *testing.T) {
	_, own := newHost(t)
	for _, d := range []string{"/v/in/side", "/va"} {
		must(t, os.MkdirAll(own+d, 0o755))
	}
	root := filepath.Dir(own)
	check := func(path, on, around string) {
		t.Helper()
		has, err := FindTopmost(path)
		must(t, err)
		in, err := MountOf(path)
		must(t, err)
		if on == "" && has != nil || on != "" && (has == nil || has.Source != on) || in == nil || in.Mountpoint != around {
			t.Errorf("%s has %+v and is in %+v, want %q and %s", path, has, in, on, around)
		}
	}
	check(own+"/v", "", root)
	for _, source := range []string{"first", "second"} {
		must(t, unix.Mount(source, own+"/v", "tmpfs", 0, "size=1m"))
		check(own+"/v", source, own+"/v")
		check(own+"/v/in/side", "", own+"/v")
		check(own+"/va", "", root)
	}
}

// TestHostMountedOver checks the only case in which unmounting would change the mounts of the host. DetachBelow returns an error.
func TestHostMountedOver(t *testing.T) {
	host, own := newHost(t)
	bind(t, host+"/data", own+"/v", 0)
	tmpfs(t, host+"/data") // this mount propagates to own/v
	must(t, os.MkdirAll(host+"/data/disk", 0o755))
	must(t, os.WriteFile(host+"/data/disk/kept", nil, 0o644))
	before := table(t, filepath.Dir(host))
	if err := DetachBelow(own); err == nil || !strings.Contains(err.Error(), "unmount it where the host mounted it") {
		t.Errorf("detached: %v", err)
	}
	if !slices.Equal(table(t, filepath.Dir(host)), before) {
		t.Error("the mounts changed")
	}
	must(t, unix.Unmount(host+"/data", unix.MNT_DETACH))
	must(t, DetachBelow(own))
	checkHost(t, host)
}

// TestDetachBelowKeepsTheDirectoryItself checks that DetachBelow does not unmount the directory itself.
func TestDetachBelowKeepsTheDirectoryItself(t *testing.T) {
	host, own := newHost(t)
	tmpfs(t, own)
	must(t, os.Mkdir(own+"/v", 0o755))
	tmpfs(t, own+"/v")
	must(t, os.Mkdir(own+"-other", 0o755)) // this directory has the same prefix, but is another directory
	tmpfs(t, own+"-other")
	must(t, DetachBelow(own))
	for path, want := range map[string]bool{own: true, own + "-other": true, own + "/v": false, host: true} {
		got := slices.ContainsFunc(table(t, filepath.Dir(host)), func(m string) bool { return strings.HasSuffix(m, " at "+path) })
		if got != want {
			t.Errorf("%s is a mount point: %v", path, got)
		}
	}
	must(t, Detach(own+"/none/at/all"))
}

func TestRemoveStopsAtMounts(t *testing.T) {
	for _, c := range []struct {
		name  string
		mount func(t *testing.T, host, at string)
	}{
		{"another file system", func(t *testing.T, _, at string) {
			must(t, os.Mkdir(at, 0o755))
			tmpfs(t, at)
			must(t, os.WriteFile(at+"/kept", nil, 0o644))
		}},
		{"the same file system", func(t *testing.T, host, at string) {
			same := filepath.Dir(filepath.Dir(filepath.Dir(at))) + "/same"
			must(t, os.Mkdir(same, 0o755))
			must(t, os.WriteFile(same+"/kept", nil, 0o644))
			bind(t, same, at, 0)
		}},
		{"a file", func(t *testing.T, host, at string) {
			must(t, os.WriteFile(at, nil, 0o644))
			must(t, unix.Mount(host+"/data/disk/kept", at, "", unix.MS_BIND, ""))
		}},
	} {
		for _, old := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, " old kernel ", old), func(t *testing.T) {
				host, own := newHost(t)
				must(t, os.MkdirAll(own+"/a", 0o755))
				c.mount(t, host, own+"/a/m")
				before := table(t, filepath.Dir(host))
				if err := RemoveAll(own); !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EBUSY) || !strings.Contains(err.Error(), "mount point") {
					t.Errorf("removed: %v", err)
				}
				if old {
					dir, err := os.Open(own + "/a")
					must(t, err)
					defer dir.Close()
					if d, err := openOld(int(dir.Fd()), "m"); !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.ENOTDIR) {
						t.Errorf("opened %v, %v", d, err)
					}
				}
				if !slices.Equal(table(t, filepath.Dir(host)), before) {
					t.Error("the mounts changed")
				}
				checkHost(t, host)
				if fi, err := os.Stat(own + "/a/m"); err != nil {
					t.Error(err)
				} else if _, err := os.Stat(own + "/a/m/kept"); fi.IsDir() && err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestRemoveMounted checks that RemoveMounted unmounts the volumes and keeps the mounts of the host. It reads the mount table only if it
// finds another mount or if a volume is in use.
func TestRemoveMounted(t *testing.T) {
	for name, c := range map[string]struct {
		mount func(host, dir string)
		looks bool
	}{
		"nothing": {mount: func(string, string) {}},
		"memory":  {mount: func(_, dir string) { tmpfs(t, dir+"/volumes/secret/a") }},
		"twice": {mount: func(_, dir string) {
			tmpfs(t, dir+"/volumes/secret/a")
			tmpfs(t, dir+"/volumes/secret/a")
		}},
		"a bind of the host's": {looks: true, mount: func(host, dir string) { bind(t, host, dir+"/volumes/secret/a", unix.MS_REC) }},
		"elsewhere":            {looks: true, mount: func(host, dir string) { bind(t, host, dir+"/subpaths", 0) }},
		"in use": {looks: true, mount: func(_, dir string) {
			tmpfs(t, dir+"/volumes/secret/a")
			f, err := os.Create(dir + "/volumes/secret/a/open")
			must(t, err)
			t.Cleanup(func() { f.Close() })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			host, own := newHost(t)
			dir := own + "/pod"
			must(t, os.MkdirAll(dir+"/volumes/secret/a", 0o755))
			must(t, os.MkdirAll(dir+"/subpaths", 0o755))
			c.mount(host, dir)
			before, looked := mountReadings, false
			defer func() { mountReadings = before }()
			mountReadings = newSharedReading(func() ([]*mountinfo.Info, error) {
				looked = true
				return before.readMounts()
			})
			must(t, RemoveMounted(dir, []string{dir + "/volumes/secret/a", dir + "/volumes/secret/none"}))
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory was not removed: %v", err)
			}
			for _, line := range table(t, filepath.Dir(host)) {
				if strings.Contains(line, dir) {
					t.Errorf("still mounted: %s", line)
				}
			}
			checkHost(t, host)
			if looked != c.looks {
				t.Errorf("the mount table was read: %v", looked)
			}
		})
	}
}

func TestRemove(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/outside", 0o755))
	must(t, os.WriteFile(dir+"/outside/kept", nil, 0o644))
	must(t, os.MkdirAll(dir+"/tree/sub", 0o755))
	must(t, os.Symlink(dir+"/outside", dir+"/tree/link"))
	must(t, unix.Mkfifo(dir+"/tree/fifo", 0o600))
	for i := range 3 * 250 {
		must(t, os.WriteFile(fmt.Sprint(dir, "/tree/sub/", i), nil, 0o644))
	}
	must(t, os.Symlink(dir+"/outside", dir+"/alone"))
	for _, p := range []string{"/tree", "/tree", "/alone", "/none/at/all"} {
		must(t, RemoveAll(dir+p))
		if _, err := os.Lstat(dir + p); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", p, err)
		}
	}
	if _, err := os.Stat(dir + "/outside/kept"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", ".", "..", "a/b"} {
		d, err := os.Open(dir)
		must(t, err)
		if err := RemoveAt(d, bad); err == nil {
			t.Errorf("removed %q", bad)
		}
		d.Close()
	}
}

// TestRemoveDeep checks a directory tree whose depth exceeds the limit of open files of the process. RemoveAll must remove it.
func TestRemoveDeep(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/tree/"+removalPrefix+"1", 0o755)) // moveUp would use this name
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	low := limit
	low.Cur = 256
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &low))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	at, err := unix.Open(dir+"/tree", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	must(t, err)
	for range 3000 {
		must(t, unix.Mkdirat(at, "d", 0o755))
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		unix.Close(at)
		at = next
	}
	unix.Close(at)
	must(t, RemoveAll(dir+"/tree"))
	if _, err := os.Lstat(dir + "/tree"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
