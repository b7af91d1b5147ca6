package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// Host is the mount namespace of the host, seen from a shim that has one of its
// own. Each OCI runtime copies and reads the whole mount table of the namespace it
// is called in, several times per container; with every pod's mounts in it the cost
// of a start would grow with the number of pods. So a shim's namespace is a slave of
// the host's without what is mounted below islet's own directories, and what one
// container needs from there is borrowed while it starts.
//
//	host:  /run/islet/ns/POD/net   /run/islet/b/CTR/rootfs   .../volumes/token
//	          | (fd of host's /)         | open_tree              | open_tree
//	shim:  b/CTR/ns -> /proc/self/..   b/CTR/rootfs            b/CTR/m/0     until it runs
//
// https://www.kernel.org/doc/html/latest/filesystems/sharedsubtree.html
type Host struct {
	root *os.File    // "/" of the host
	do   chan func() // run on a thread in the host's mount namespace
}

// errVisible says that something can only be done among the host's mounts.
var errVisible = errors.New("seen otherwise by the shim than by the host")

// OpenHost takes the host's root directory and its mount namespace, as open files
// that it owns from now on, and makes this process's own namespace a slave of the
// host's in which nothing is mounted at or below hidden. This process must have been
// started in a mount namespace of its own.
func OpenHost(root, namespace *os.File, hidden []string) (*Host, error) {
	defer namespace.Close()
	unix.CloseOnExec(int(root.Fd()))
	unix.CloseOnExec(int(namespace.Fd()))
	h := &Host{root: root, do: make(chan func())}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, fmt.Errorf("follow the host's mounts: %w", err)
	}
	for _, dir := range hidden {
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return nil, fmt.Errorf("hide the mounts below %s: %w", dir, err)
		}
	}
	ready := make(chan error)
	go h.serve(int(namespace.Fd()), ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("enter the host's mount namespace: %w", err)
	}
	return h, nil
}

// serve runs what is asked for among the host's mounts, for ever. Its thread is never
// given back: nothing else may run there.
func (h *Host) serve(namespace int, ready chan<- error) {
	runtime.LockOSThread()
	err := unix.Unshare(unix.CLONE_FS)
	if err == nil {
		err = unix.Setns(namespace, unix.CLONE_NEWNS)
	}
	ready <- err
	if err != nil {
		return // and the thread ends
	}
	for f := range h.do {
		f()
	}
}

// there runs f among the host's mounts.
func (h *Host) there(f func() error) error {
	done := make(chan error, 1)
	h.do <- func() { done <- f() }
	return <-done
}

// start starts a command among the host's mounts.
func (h *Host) start(cmd *exec.Cmd) error { return h.there(cmd.Start) }

// borrow makes what a container needs visible in its bundle, until giveBack. An
// error that is errVisible means that it must be started among the host's mounts,
// and that nothing is changed.
func (h *Host) borrow(bundle string, m wire.Mounts) (giveBack func(), err error) {
	for _, path := range m.Same {
		if err := h.same(path); err != nil {
			return nil, err
		}
	}
	var taken []string
	giveBack = func() {
		for _, target := range taken {
			unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
	for link, source := range m.Borrow {
		target := filepath.Join(bundle, link)
		if err := h.take(source, target); err != nil {
			giveBack()
			return nil, fmt.Errorf("borrow %s: %w", source, err)
		}
		taken = append(taken, target)
	}
	pins := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(h.root.Fd())) + m.Pins
	if err := relink(pins, filepath.Join(bundle, wire.PinsLink)); err != nil {
		giveBack()
		return nil, err
	}
	return giveBack, nil
}

// direct makes the bundle lead to the host's own places again.
func direct(bundle string, m wire.Mounts) error {
	for link, source := range m.Borrow {
		if target := filepath.Join(bundle, link); source != target {
			if err := relink(source, target); err != nil {
				return err
			}
		}
	}
	return relink(m.Pins, filepath.Join(bundle, wire.PinsLink))
}

// relink makes a symbolic link, in place of a link, an empty file or an empty
// directory.
func relink(to, path string) error {
	if at, err := os.Readlink(path); err == nil && at == to {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(to, path)
}

// same says whether a path is the same file here and on the host: it is not when
// the host has mounted something there without telling its slaves.
func (h *Host) same(path string) error {
	var here, there unix.Stat_t
	if err := unix.Stat(path, &here); err != nil {
		return fmt.Errorf("%s: %w", path, errVisible)
	}
	if err := unix.Fstatat(int(h.root.Fd()), path[1:], &there, 0); err != nil || here.Dev != there.Dev || here.Ino != there.Ino {
		return fmt.Errorf("%s: %w", path, errVisible)
	}
	return nil
}

// take mounts the tree that is at source on the host at target, which is replaced.
// Nothing that happens to the copy comes back to the host.
func (h *Host) take(source, target string) error {
	tree := -1
	err := h.there(func() error {
		// The agent has followed the links. One that is there now was put there since.
		at, err := unix.Openat2(unix.AT_FDCWD, source, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
		if err != nil {
			return err
		}
		defer unix.Close(at)
		tree, err = unix.OpenTree(at, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		return err
	})
	if err != nil {
		return fmt.Errorf("open the tree: %w", err)
	}
	defer unix.Close(tree)
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	if err := place(target, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mount it: %w", err)
	}
	if err := unix.Mount("", target, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		// Unmounted as it is it might take the host's with it: so it stays.
		return fmt.Errorf("make it private: %w", err)
	}
	return nil
}

// place leaves a mount point at path, whatever was there.
func place(path string, dir bool) error {
	if st, err := os.Lstat(path); err == nil && st.IsDir() == dir && st.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if dir {
		return os.Mkdir(path, 0o700)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}
