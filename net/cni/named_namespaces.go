package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// namedDir is the directory in which containerd, CRI-O and `ip netns` bind network namespaces. The containers of network plugins
// mount it from the host.
const namedDir = "/var/run/netns"

// namedNamespaces binds the network namespaces of sandboxes in a shared directory. Many CNI plugins pass CNI_NETNS to a daemon in a
// container. The daemon sees mounts that are made in this directory later, but not the directory in which the runtime pins
// namespaces. Some daemons identify a sandbox by the base name of the path, so this name is unique.
type namedNamespaces struct {
	dir string
	mu  sync.Mutex // serializes share
}

func (n *namedNamespaces) path(id string) string { return filepath.Join(n.dir, "islet-"+id) }

// has reports whether the namespace at a path is bound for a sandbox.
func (n *namedNamespaces) has(id, path string) bool {
	own, err := os.Stat(path)
	if err != nil {
		return false
	}
	bound, err := os.Stat(n.path(id))
	return err == nil && os.SameFile(own, bound)
}

// bind binds the namespace at a path for a sandbox. It replaces an earlier namespace of the sandbox.
func (n *namedNamespaces) bind(id, path string) error {
	err := n.share()
	if err == nil {
		err = n.unbind(id)
	}
	if err == nil {
		err = os.WriteFile(n.path(id), nil, 0o444)
	}
	if err == nil {
		err = unix.Mount(path, n.path(id), "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("bind network namespace: %w", errors.Join(err, n.unbind(id)))
	}
	return nil
}

// share makes the directory a shared mount, as `ip netns` does. Otherwise containers that run already would not see later mounts
// in it.
func (n *namedNamespaces) share() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	err := unix.Mount("", n.dir, "", unix.MS_SHARED|unix.MS_REC, "")
	if err != unix.EINVAL { // it is not a mount point
		return err
	}
	if err := unix.Mount(n.dir, n.dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", n.dir, "", unix.MS_SHARED|unix.MS_REC, "")
}

// unbind removes the name of a sandbox's namespace. It succeeds if there is none.
func (n *namedNamespaces) unbind(id string) error {
	err := unix.Unmount(n.path(id), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("unbind network namespace: %w", err)
	}
	if err := os.Remove(n.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unbind network namespace: %w", err)
	}
	return nil
}

// isNamespace reports whether a path leads to a namespace. After a reboot it may be an empty file.
func isNamespace(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && int64(st.Type) == unix.NSFS_MAGIC
}
