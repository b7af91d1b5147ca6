package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// subPath returns a path that is the subPath of a volume mount and stays so: the
// place is opened beneath the volume, whatever links a container left there, and
// bound to a path that no container can change.
// https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath
func (v *Volumes) subPath(pod *v1.Pod, ctr *v1.Container, index int, volume string) (string, error) {
	m := &ctr.VolumeMounts[index]
	if !filepath.IsLocal(m.SubPath) {
		return "", errors.New("it must be a relative path without ..")
	}
	f, err := openBeneath(volume, filepath.Clean(m.SubPath))
	if err != nil {
		return "", err
	}
	defer f.Close()
	target := filepath.Join(v.podDir(pod.UID), "volume-subpaths", m.Name, ctr.Name, strconv.Itoa(index))
	if err := mounts.Detach(target); err != nil { // of the attempt before
		return "", err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := likeness(f, target); err != nil {
		return "", err
	}
	both := m.MountPropagation != nil && *m.MountPropagation == v1.MountPropagationBidirectional
	if err := bindTo(f, target, both); err != nil {
		return "", fmt.Errorf("bind it to %s: %w", target, errors.Join(err, mounts.Detach(target)))
	}
	return target, nil
}

// bindTo mounts what is open at target, without what is mounted below it, as a
// kubelet does. It is a slave of the host's mount: what the host mounts and
// unmounts reaches it, and nothing goes the other way. Only a container whose own
// mounts are to reach the host (both) shares its mount with the host; then
// mounts.Detach cuts it off before it unmounts.
func bindTo(f *os.File, target string, both bool) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if both {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_SLAVE, "")
}

// openBeneath opens a path below a volume without leaving it. A missing
// directory is made, with the mode of the volume.
func openBeneath(volume, sub string) (*os.File, error) {
	dir, err := os.Open(volume)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(int(dir.Fd()), sub, how)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeBeneath(volume, sub); err != nil {
			return nil, err
		}
		fd, err = unix.Openat2(int(dir.Fd()), sub, how)
	}
	if err != nil {
		return nil, fmt.Errorf("open it beneath the volume: %w", err)
	}
	return os.NewFile(uintptr(fd), sub), nil
}

func makeBeneath(volume, sub string) error {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return err
	}
	defer root.Close()
	fi, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := root.MkdirAll(sub, fi.Mode().Perm()); err != nil {
		return err
	}
	// Not cut by the umask, and with the group that an fsGroup is given on.
	return root.Chmod(sub, fi.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

// likeness makes target a file or a directory, as f is, to mount f on.
func likeness(f *os.File, target string) error {
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.IsDir() {
		return os.MkdirAll(target, dirMode)
	}
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	return touch(target, 0o640)
}
