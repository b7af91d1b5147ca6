package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// What the group of a pod may do with files of its volumes.
const (
	groupFiles = 0o660
	groupDirs  = 0o110 | fs.ModeSetgid
	deepest    = 1000 // directories open at once
)

// A Grouper is a Driver whose volumes' files get the pod's fsGroup from the node.
type Grouper interface {
	// SetsGroup says whether this volume's do.
	SetsGroup(v Volume, u Use) bool
}

// group gives a volume's files to the pod's fsGroup, if its driver wants that.
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods
func (k *Keeper) group(ctx context.Context, v Volume, d Driver, u Use) error {
	sc := u.Pod.Spec.SecurityContext
	g, ok := d.(Grouper)
	if v.Block || v.ReadOnly || !ok || sc == nil || sc.FSGroup == nil || !g.SetsGroup(v, u) {
		return nil
	}
	// What other pods use already is not changed under them if it fits.
	lazy := sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch ||
		k.usedByOthers(v.ID, string(u.Pod.UID))
	if err := Leave(ctx, "group", u.Path, func() error { return SetGroup(ctx, u.Path, int(*sc.FSGroup), lazy) }); err != nil {
		return fmt.Errorf("MountVolume.SetUp failed for volume %q : applyFSGroup failed for vol %s: %w", v.Name, v.Name, err)
	}
	return nil
}

// SetGroup gives a directory with all that is in it to a group, which may then read and
// write it. lazy: only if the directory itself is not the group's yet. Links are not
// followed, and what is mounted below is left as it is. The directory itself is the last,
// so that what was cut short is done again. It ends with ctx, after what it does just then.
func SetGroup(ctx context.Context, dir string, gid int, lazy bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	top, err := root.Lstat(".")
	if err != nil {
		return err
	}
	if lazy && fits(top, gid) {
		return nil
	}
	return give(ctx, root, ".", top, device64(top), gid, 0)
}

func fits(fi fs.FileInfo, gid int) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	want := fs.FileMode(groupFiles | 0o110)
	return ok && int(st.Gid) == gid && fi.Mode().Perm()&want == want && fi.Mode()&fs.ModeSetgid != 0
}

func device64(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev) //nolint:unconvert // its size differs by architecture
	}
	return 0
}

// give changes one file, a directory after what is in it. What others remove meanwhile is
// no error.
func give(ctx context.Context, root *os.Root, name string, fi fs.FileInfo, dev uint64, gid, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if device64(fi) != dev {
		return nil
	}
	if fi.IsDir() {
		if err := giveAll(ctx, root, name, dev, gid, depth+1); err != nil {
			return err
		}
	}
	if err := root.Lchown(name, -1, gid); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	mode := fi.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | groupFiles
	if fi.IsDir() {
		mode |= groupDirs
	}
	if err := root.Chmod(name, mode); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func giveAll(ctx context.Context, root *os.Root, name string, dev uint64, gid, depth int) error {
	if depth > deepest {
		return fmt.Errorf("%s is nested too deep", name)
	}
	d, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(256)
		for _, e := range entries {
			child := path.Join(name, e.Name())
			fi, err := root.Lstat(child)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if err := give(ctx, root, child, fi, dev, gid, depth); err != nil {
				return err
			}
		}
		if err != nil || len(entries) == 0 {
			if errors.Is(err, io.EOF) || err == nil {
				return nil
			}
			return err
		}
	}
}
