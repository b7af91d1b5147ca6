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

// A Host represents the host's mount namespace for a shim that runs in its own mount namespace. OCI
// runtimes copy and read the whole mount table several times for each container. In the host's
// mount namespace, the table contains the mounts of all pods, so the cost of a start would grow
// with the number of pods. The mount namespace of a shim is therefore a slave of the host's without
// the mounts below islet's directories. Mounts that a container needs from these directories are
// copied into the bundle while the container starts.
//
//	host:  /run/islet/ns/POD/net   /run/islet/b/CTR/rootfs   .../volumes/token
//	          | (fd of host's /)         | open_tree              | open_tree
//	shim:  b/CTR/ns -> /proc/self/..   b/CTR/rootfs            b/CTR/m/0     until it runs
//
// https://www.kernel.org/doc/html/latest/filesystems/sharedsubtree.html
type Host struct {
	root      *os.File    // root directory of the host
	namespace string      // path of the host's mount namespace, which a thread of this process is in
	starts    chan func() // functions to run in the host's mount namespace, none of which touches a volume
	volumes   volumeCalls
}

// errNotSame is returned for a path that refers to different files in the two mount namespaces. The container must then be started in the
// host's mount namespace.
var errNotSame = errors.New("the shim and the host see different files")

// OpenHost makes the mount namespace of this process a slave of the host's, and unmounts the mounts at and below the hidden directories.
// The process must have been started in its own mount namespace. OpenHost takes ownership of the two files, which are the host's root
// directory and mount namespace.
func OpenHost(root, namespace *os.File, hidden []string) (*Host, error) {
	defer namespace.Close()
	unix.CloseOnExec(int(root.Fd()))
	unix.CloseOnExec(int(namespace.Fd()))
	h := &Host{root: root, starts: make(chan func()), volumes: newVolumeCalls()}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return nil, fmt.Errorf("make the mount namespace a slave of the host's: %w", err)
	}
	for _, dir := range hidden {
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return nil, fmt.Errorf("hide the mounts below %s: %w", dir, err)
		}
	}
	ready := make(chan error)
	go h.serve(namespace, ready)
	if err := <-ready; err != nil {
		return nil, fmt.Errorf("enter the host's mount namespace: %w", err)
	}
	return h, nil
}

// serve runs the functions that h.starts receives, on a thread in the host's mount namespace. It never
// unlocks the thread, so no other goroutine runs in that namespace. If serve cannot enter the
// namespace, it returns. Otherwise it runs until the end of this process.
func (h *Host) serve(namespace *os.File, ready chan<- error) {
	runtime.LockOSThread()
	err := enter(namespace)
	h.namespace = fmt.Sprintf("/proc/self/task/%d/ns/mnt", unix.Gettid())
	ready <- err
	if err != nil {
		return // the runtime ends the locked thread
	}
	for f := range h.starts {
		f()
	}
}

// enter moves the thread of the calling goroutine to a mount namespace. The goroutine must have locked the thread, and must never unlock
// it.
func enter(namespace *os.File) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS)
}

// inNewThread runs f in the host's mount namespace, on a thread that ends with f. A call that blocks in the kernel thus blocks no other
// call. The main thread is not used, because /proc/PID describes it.
func (h *Host) inNewThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			done <- h.inNewThread(f) // on another thread, because this goroutine occupies the main thread
			runtime.UnlockOSThread()
			return
		}
		namespace, err := os.Open(h.namespace)
		if err == nil {
			defer namespace.Close()
			err = enter(namespace)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// start starts a command in the host's mount namespace.
func (h *Host) start(cmd *exec.Cmd) error {
	done := make(chan error, 1)
	h.starts <- func() { done <- cmd.Start() }
	return <-done
}

// copyMounts mounts copies of the mounts that a container needs in its bundle. The returned function removes the copies. If the error is
// errNotSame, nothing was changed. If a volume does not respond, copyMounts returns an error, and undoes the rest when the volume responds.
func (h *Host) copyMounts(bundle string, m wire.Mounts) (unmount func(), err error) {
	return h.volumes.call(func(begin func(path string) error) (func(), error) { return h.copyMountsNow(bundle, m, begin) })
}

// copyMountsNow does the work of copyMounts. It calls begin before each step that may block in the kernel.
func (h *Host) copyMountsNow(bundle string, m wire.Mounts, begin func(path string) error) (unmount func(), err error) {
	for _, path := range m.Same {
		if err := begin(path); err != nil {
			return nil, err
		}
		if err := h.checkSame(path); err != nil {
			return nil, err
		}
	}
	trees, err := h.cloneTrees(m.Borrow, begin)
	defer func() {
		for _, tree := range trees {
			unix.Close(tree)
		}
	}()
	if err != nil {
		return nil, err
	}
	var mounted []string
	unmount = func() {
		for _, target := range mounted {
			unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		}
	}
	for link, source := range m.Borrow {
		target := filepath.Join(bundle, link)
		err := begin(source)
		if err == nil {
			err = mountTree(trees[link], target)
		}
		if err != nil {
			unmount()
			return nil, fmt.Errorf("copy mounts of %s: %w", source, err)
		}
		mounted = append(mounted, target)
	}
	pins := "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(h.root.Fd())) + m.Pins
	if err := replaceSymlink(pins, filepath.Join(bundle, wire.PinsLink)); err != nil {
		unmount()
		return nil, err
	}
	return unmount, nil
}

// restoreLinks makes the links in the bundle point to the paths of the host again.
func restoreLinks(bundle string, m wire.Mounts) error {
	for link, source := range m.Borrow {
		if target := filepath.Join(bundle, link); source != target {
			if err := replaceSymlink(source, target); err != nil {
				return err
			}
		}
	}
	return replaceSymlink(m.Pins, filepath.Join(bundle, wire.PinsLink))
}

// replaceSymlink creates a symbolic link at path. It replaces an existing link, file or empty directory.
func replaceSymlink(to, path string) error {
	if at, err := os.Readlink(path); err == nil && at == to {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(to, path)
}

// checkSame returns errNotSame unless the path refers to the same file in this mount namespace and on the host. The files differ if the
// host has a mount at this path that was not propagated to this mount namespace.
func (h *Host) checkSame(path string) error {
	var here, there unix.Stat_t
	if err := unix.Stat(path, &here); err != nil {
		return fmt.Errorf("%s: %w", path, errNotSame)
	}
	if err := unix.Fstatat(int(h.root.Fd()), path[1:], &there, 0); err != nil || here.Dev != there.Dev || here.Ino != there.Ino {
		return fmt.Errorf("%s: %w", path, errNotSame)
	}
	return nil
}

// cloneTrees returns private copies of the host's mount trees at the sources, as file descriptors with the keys of the sources. The caller
// closes them, also after an error.
func (h *Host) cloneTrees(sources map[string]string, begin func(path string) error) (map[string]int, error) {
	trees := map[string]int{}
	err := h.inNewThread(func() error {
		for link, source := range sources {
			if err := begin(source); err != nil {
				return err
			}
			tree, err := cloneTree(source)
			if err != nil {
				return fmt.Errorf("copy mounts of %s: clone the mounts: %w", source, err)
			}
			trees[link] = tree
		}
		return nil
	})
	return trees, err
}

func cloneTree(source string) (int, error) {
	// The agent has resolved all symlinks. If the source contains a symlink, the symlink was
	// created later, possibly by a pod.
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	at, err := unix.Openat2(unix.AT_FDCWD, source, how)
	if err != nil {
		return -1, err
	}
	defer unix.Close(at)
	return unix.OpenTree(at, "", unix.AT_EMPTY_PATH|unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
}

// mountTree mounts a copy of a mount tree on target. Changes to the copy do not propagate to the host.
func mountTree(tree int, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	if err := makeMountPoint(target, st.Mode&unix.S_IFMT == unix.S_IFDIR); err != nil {
		return err
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach the copy: %w", err)
	}
	if err := unix.Mount("", target, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		// The copy stays mounted: unmounting a shared mount could also unmount the host's mount.
		return fmt.Errorf("make the copy private: %w", err)
	}
	return nil
}

// makeMountPoint creates an empty file or a directory at path. It replaces a link, a file or an
// empty directory that cannot be used as the mount point.
func makeMountPoint(path string, dir bool) error {
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
