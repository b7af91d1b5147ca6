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

// mountLinksDir is a directory in a bundle. It contains a link for each bind mount whose source is below
// a hidden directory.
const mountLinksDir = "m"

// hideMounts turns the directories that contain the mounts of pods into mount points, and returns
// them. A shim can then unmount them in its own mount namespace; see server.Host. The result is
// empty, and shims see all mounts, in these cases:
//
//   - The host's root mount is not shared. Later mounts would not propagate to a shim.
//   - The kernel is older than 5.6. It cannot move a mount to another namespace.
//   - There are already mounts below the directories, for example from an earlier version of islet.
func (r *Runtime) hideMounts() ([]string, error) {
	if !canMoveMounts() {
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
	shared, mounted := false, map[string]bool{}
	for _, m := range table {
		if m.Mountpoint == "/" {
			shared = strings.Contains(m.Optional, "shared:")
		}
		// A tmpfs on the run directory hides older mounts below it, so check that the mounts there
		// are visible. Do not check other mounts, because access to a volume whose server is down would block.
		mounted[m.Mountpoint] = !strings.HasPrefix(m.Mountpoint, r.c.RunDir+"/") || isMounted(m.Mountpoint)
	}
	if !shared {
		return nil, nil
	}
	dirs := r.hideableDirs()
	for _, dir := range dirs {
		if mounted[dir] {
			continue
		}
		below := func(m *mountinfo.Info) bool { return strings.HasPrefix(m.Mountpoint, dir+"/") && mounted[m.Mountpoint] }
		if slices.ContainsFunc(table, below) {
			return nil, nil
		}
	}
	for _, dir := range dirs {
		if mounted[dir] {
			continue
		}
		// Mounts below the runtime's own directories are private. The directories of pods become a
		// shared peer group, because volume plugins mount and unmount there.
		kinds := []uintptr{unix.MS_BIND, unix.MS_PRIVATE}
		if slices.Contains(r.c.PodDirs, dir) {
			kinds = append(kinds, unix.MS_SHARED)
		}
		for _, kind := range kinds {
			if err := unix.Mount(dir, dir, "", kind, ""); err != nil {
				return nil, fmt.Errorf("make %s a mount point: %w", dir, err)
			}
		}
	}
	return dirs, nil
}

// isMounted reports whether path is a mount point and no other mount hides it.
func isMounted(path string) bool {
	mounted, err := mountinfo.Mounted(path)
	return err == nil && mounted
}

func (r *Runtime) hideableDirs() []string {
	return append([]string{r.dirs.bundles, r.dirs.files, r.dirs.pins}, r.c.PodDirs...)
}

// unhideMounts reverts hideMounts for the directories below which nothing is mounted any more.
func (r *Runtime) unhideMounts() error {
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

// canMoveMounts reports whether the kernel can move a copy of a mount to another mount namespace.
func canMoveMounts() bool {
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

// withoutLinks resolves the symlinks in path, like filepath.EvalSymlinks. A path without symlinks,
// which is the usual case, costs only one system call.
func withoutLinks(path string) (string, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return filepath.EvalSymlinks(path)
	}
	unix.Close(fd)
	return filepath.Clean(path), nil
}

// lendMounts prepares a container for a shim that does not see the mounts below hidden directories. In the specification
// it replaces the source of each bind mount below a hidden directory with a link in the bundle. It returns the mounts that
// the shim must attach at these links. The result is nil if the container must start in the host's mount namespace. One
// reason is that the container mounts a hidden directory or a parent of one. Another reason is that mounts must
// propagate between the container and the host.
func (r *Runtime) lendMounts(c *container, spec *specs.Spec, pins string) (*wire.Mounts, error) {
	bundle := r.bundlePath(c.rec.ID)
	m := &wire.Mounts{Pins: pins, Borrow: map[string]string{rootfsDir: filepath.Join(bundle, rootfsDir)}}
	if err := os.MkdirAll(filepath.Join(bundle, mountLinksDir), 0o700); err != nil {
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
	isolated := spec.Linux.RootfsPropagation == ""
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
			link := filepath.Join(mountLinksDir, strconv.Itoa(i))
			if err := os.Symlink(source, filepath.Join(bundle, link)); err != nil {
				return nil, err
			}
			m.Borrow[link], mount.Source = source, filepath.Join(bundle, link)
		case slices.ContainsFunc(r.hidden, func(dir string) bool {
			return dir == source || strings.HasPrefix(dir, strings.TrimSuffix(source, "/")+"/")
		}):
			isolated = false
		default:
			m.Same = append(m.Same, source)
		}
	}
	if !isolated {
		return nil, nil
	}
	return m, nil
}
