package ctrd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// borrowed is the directory in a bundle with a link to each source of a bind mount
// that a shim does not see the mounts of.
const borrowed = "m"

// hide makes mount points of the directories below which the mounts of pods are, so
// that a shim can be without them: see server.Host. It returns them, or none where
// shims must see all mounts: where the host does not share its mounts, so that later
// ones would not reach a shim, where a kernel before 5.6 cannot lend a mount, and
// where something is mounted below them already, as after an earlier version.
func (r *Runtime) hide() ([]string, error) {
	if !canLend() {
		return nil, nil
	}
	for _, dir := range r.c.PodDirs {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil, err
		}
	}
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	shared, covers := false, map[string]bool{}
	for _, m := range table {
		if m.Mountpoint == "/" {
			shared = strings.Contains(m.Optional, "shared:")
		}
		// A tmpfs that was mounted on the run directory anew hides what is below. Others are not
		// asked: a volume of a server that is gone does not answer.
		covers[m.Mountpoint] = !strings.HasPrefix(m.Mountpoint, r.c.RunDir+"/") || isMounted(m.Mountpoint)
	}
	if !shared {
		return nil, nil
	}
	dirs := r.hideable()
	for _, dir := range dirs {
		if !covers[dir] && slices.ContainsFunc(table, func(m *mountinfo.Info) bool { return strings.HasPrefix(m.Mountpoint, dir+"/") && covers[m.Mountpoint] }) {
			return nil, nil
		}
	}
	for _, dir := range dirs {
		if covers[dir] {
			continue
		}
		// What the runtime mounts below its own directories is its own affair. The
		// pods' directories are shared again, apart from the rest: mounts of volume
		// plugins come and go there.
		kinds := []uintptr{unix.MS_BIND, unix.MS_PRIVATE}
		if slices.Contains(r.c.PodDirs, dir) {
			kinds = append(kinds, unix.MS_SHARED)
		}
		for _, kind := range kinds {
			if err := unix.Mount(dir, dir, "", kind, ""); err != nil {
				return nil, fmt.Errorf("make a mount point of %s: %w", dir, err)
			}
		}
	}
	return dirs, nil
}

// isMounted says whether a path is a mount point, and no other mount hides it.
func isMounted(path string) bool {
	yes, err := mountinfo.Mounted(path)
	return err == nil && yes
}

func (r *Runtime) hideable() []string {
	return append([]string{r.dirs.bundles, r.dirs.files, r.dirs.pins}, r.c.PodDirs...)
}

// unhide undoes hide when nothing is mounted there any more.
func (r *Runtime) unhide() error {
	var errs []error
	for _, dir := range r.hidden {
		left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err == nil && !slices.ContainsFunc(left, func(m *mountinfo.Info) bool { return m.Mountpoint != dir }) {
			err = unmount(dir)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// canLend says whether the kernel can move a copy of a mount to another namespace.
func canLend() bool {
	dir, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	tree, err := unix.OpenTree(dir, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return false
	}
	unix.Close(tree)
	return true
}

// withoutLinks is filepath.EvalSymlinks, which looks at each directory of a path, where the
// kernel has not said at once that none of them is a link.
func withoutLinks(path string) (string, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return filepath.EvalSymlinks(path)
	}
	unix.Close(fd)
	return filepath.Clean(path), nil
}

// lend replaces the sources in a specification that a shim does not see the mounts of
// by links in the bundle, and says what a shim needs to put mounts there. It is nil
// for a container that must start among the host's mounts: when mounts are to come
// and go between it and the host, or when it is to see what is hidden.
func (r *Runtime) lend(c *container, spec *specs.Spec, pins string) (*wire.Mounts, error) {
	bundle := r.bundle(c.rec.ID)
	m := &wire.Mounts{Pins: pins, Borrow: map[string]string{rootfs: filepath.Join(bundle, rootfs)}}
	if err := os.MkdirAll(filepath.Join(bundle, borrowed), 0o700); err != nil {
		return nil, err
	}
	if err := os.Symlink(pins, filepath.Join(bundle, wire.PinsLink)); err != nil {
		return nil, err
	}
	for i := range spec.Linux.Namespaces {
		if name, ok := strings.CutPrefix(spec.Linux.Namespaces[i].Path, pins+"/"); ok {
			spec.Linux.Namespaces[i].Path = filepath.Join(bundle, wire.PinsLink, name)
		}
	}
	apart := spec.Linux.RootfsPropagation == ""
	for i := range spec.Mounts {
		mount := &spec.Mounts[i]
		if mount.Type != "bind" {
			continue
		}
		source, err := withoutLinks(mount.Source)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", mount.Destination, err)
		}
		switch {
		case slices.ContainsFunc(r.hidden, func(dir string) bool { return strings.HasPrefix(source, dir+"/") }):
			link := filepath.Join(borrowed, strconv.Itoa(i))
			if err := os.Symlink(source, filepath.Join(bundle, link)); err != nil {
				return nil, err
			}
			m.Borrow[link], mount.Source = source, filepath.Join(bundle, link)
		case slices.ContainsFunc(r.hidden, func(dir string) bool {
			return dir == source || strings.HasPrefix(dir, strings.TrimSuffix(source, "/")+"/")
		}):
			apart = false
		default:
			m.Same = append(m.Same, source)
		}
	}
	if !apart {
		return nil, nil
	}
	return m, nil
}
