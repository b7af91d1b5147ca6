package podvolumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// A place is what a subPath names, open, so that it stays the same whatever links a
// container puts in its way.
type place struct {
	*os.File
	isDir bool
}

// openSubPath opens the subPath of a volume mount beneath the volume, whatever links a
// container left there. It may hang, as long as the volume's server does.
// https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath
func openSubPath(m *v1.VolumeMount, volume string) (*place, error) {
	if !filepath.IsLocal(m.SubPath) {
		return nil, errors.New("it must be a relative path without ..")
	}
	if err := mounts.Answers(volume); err != nil {
		return nil, err
	}
	f, err := openBeneath(volume, filepath.Clean(m.SubPath))
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &place{f, fi.IsDir()}, nil
}

// bindSubPath binds a place to a path that no container can change, and returns that. It
// asks nothing of the volume.
func (v *Volumes) bindSubPath(uid types.UID, ctr *v1.Container, index int, p *place) (string, error) {
	target := filepath.Join(v.podDir(uid), "volume-subpaths", ctr.VolumeMounts[index].Name, ctr.Name, strconv.Itoa(index))
	if err := mounts.Detach(target); err != nil { // of the attempt before
		return "", err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := p.likeness(target); err != nil {
		return "", err
	}
	m := ctr.VolumeMounts[index].MountPropagation
	if err := bindTo(p.File, target, m != nil && *m == v1.MountPropagationBidirectional); err != nil {
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

// likeness makes target a file or a directory, as the place is, to mount it on.
func (p *place) likeness(target string) error {
	if p.isDir {
		return os.MkdirAll(target, dirMode)
	}
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	return touch(target, 0o640)
}
