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

// A subPathFile is the opened file or directory of a subPath. Links that a container creates later do not affect it.
type subPathFile struct {
	*os.File
	isDir bool
}

// openSubPath opens the subPath of a volume mount. Links cannot lead outside the volume. openSubPath may block while
// the volume's server does not respond.
//
// https://kubernetes.io/docs/concepts/storage/volumes/#using-subpath
func openSubPath(m *v1.VolumeMount, volume string) (*subPathFile, error) {
	if !filepath.IsLocal(m.SubPath) {
		return nil, errors.New("the path must be relative and must not contain ..")
	}
	if err := mounts.CheckResponding(volume); err != nil {
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
	return &subPathFile{f, fi.IsDir()}, nil
}

// bindSubPath bind-mounts the file at a path that no container can change, and returns this path. It makes no
// call to the volume's server.
func (v *Volumes) bindSubPath(uid types.UID, ctr *v1.Container, index int, p *subPathFile) (string, error) {
	target := filepath.Join(v.podDir(uid), "volume-subpaths", ctr.VolumeMounts[index].Name, ctr.Name, strconv.Itoa(index))
	if err := mounts.Detach(target); err != nil { // the mount of a previous attempt
		return "", err
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := p.makeMountPoint(target); err != nil {
		return "", err
	}
	m := ctr.VolumeMounts[index].MountPropagation
	if err := bindTo(p.File, target, m != nil && *m == v1.MountPropagationBidirectional); err != nil {
		return "", fmt.Errorf("bind it to %s: %w", target, errors.Join(err, mounts.Detach(target)))
	}
	return target, nil
}

// bindTo bind-mounts an open file at the target, without the mounts below the file. A kubelet does the same. Mounts
// that are later created below the source also appear at the target. For a container with bidirectional mount
// propagation, mounts that are created at the target also appear at the source. Before mounts.Detach unmounts such a
// bind mount, it makes the bind mount private.
func bindTo(f *os.File, target string, both bool) error {
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if both {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_SLAVE, "")
}

// openBeneath opens a path below a volume's directory. It creates missing directories with the mode of the volume's
// directory.
func openBeneath(volume, sub string) (*os.File, error) {
	root, err := os.OpenRoot(volume)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := openOrMake(root, dir, sub, 0)
	if errors.Is(err, unix.EXDEV) { // an absolute symlink, or a symlink that leads out of the volume
		if sub, err = resolveLinks(root, dir, volume, sub); err == nil {
			fd, err = openOrMake(root, dir, sub, unix.RESOLVE_NO_SYMLINKS)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open it beneath the volume: %w", err)
	}
	return os.NewFile(uintptr(fd), sub), nil
}

// openOrMake opens a path below root, or creates it as a directory. The directory dir is the open root.
func openOrMake(root *os.Root, dir *os.File, sub string, resolve uint64) (int, error) {
	resolve |= unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve}
	fd, err := unix.Openat2(int(dir.Fd()), sub, how)
	if !errors.Is(err, fs.ErrNotExist) {
		return fd, err
	}
	if err := makeBeneath(root, sub); err != nil {
		return -1, err
	}
	return unix.Openat2(int(dir.Fd()), sub, how)
}

func makeBeneath(root *os.Root, sub string) error {
	fi, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := root.MkdirAll(sub, fi.Mode().Perm()); err != nil {
		return err
	}
	// The mode from MkdirAll is not sufficient: the umask may have changed it, and it lacks the setgid bit for an
	// fsGroup.
	return root.Chmod(sub, fi.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

// makeMountPoint creates the mount point at the path target. The mount point is a directory if p is a directory.
// Otherwise it is a file.
func (p *subPathFile) makeMountPoint(target string) error {
	if p.isDir {
		return os.MkdirAll(target, dirMode)
	}
	if err := os.MkdirAll(filepath.Dir(target), dirMode); err != nil {
		return err
	}
	return createEmpty(target, 0o640)
}
