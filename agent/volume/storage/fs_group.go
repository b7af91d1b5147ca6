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
	"time"

	v1 "k8s.io/api/core/v1"
)

// Permission bits that are added to the files of a pod's volume if the pod has an fsGroup.
const (
	groupFiles = 0o660
	groupDirs  = 0o110 | fs.ModeSetgid
	maxDepth   = 1000 // open directories
)

// A Grouper is a Driver that can require the node to set the group of a volume's files to the pod's fsGroup.
type Grouper interface {
	// SetsGroup reports whether the node must set the group for this volume.
	SetsGroup(v Volume, u Use) bool
}

// applyFSGroup changes the group of a volume's files to the pod's fsGroup, if its driver is a
// Grouper. The caller has locked the pod's use of the volume, but not the volume.
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/ (change policy for volumes)
func (k *Mounter) applyFSGroup(ctx context.Context, v Volume, d Driver, u Use) error {
	sc := u.Pod.Spec.SecurityContext
	g, ok := d.(Grouper)
	if v.Block || v.ReadOnly || !ok || sc == nil || sc.FSGroup == nil || !g.SetsGroup(v, u) {
		return nil
	}
	ctx = longStep(ctx, fmt.Sprintf("the group of the volume's files is being changed to %d", *sc.FSGroup))
	unlock, err := k.lock(ctx, volumeUse{id: "group of " + v.ID}) // two pods must not change the files of a volume at the same time
	if err != nil {
		return err
	}
	defer unlock()
	// If another pod also uses the volume, the files are changed only if the root directory has a different group.
	lazy := sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch ||
		k.usedByOthers(v.ID, string(u.Pod.UID))
	// When ctx ends, the change ends after the current file. It is waited for, because an open file would keep the file system mounted.
	wait, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(probeTime, stop) })()
	if err := CallOrAbandon(wait, "group", u.Path, func() error { return k.setGroup(ctx, u.Path, int(*sc.FSGroup), lazy) }); err != nil {
		return fmt.Errorf("MountVolume.SetUp failed for volume %q : applyFSGroup failed for vol %s: %w", v.Name, v.Name, err)
	}
	return nil
}

// SetGroup sets the group of a directory tree, and makes the tree readable and writable for the group. If lazy is
// true and the top directory already has the group, it does nothing. It does not follow links, and does not descend
// into other mounts. It writes no file that already has the group and the mode. It changes the top directory last. So if
// a call is interrupted, the next call starts again. If ctx ends, it returns after the current file.
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
	if lazy && hasGroup(top, gid) {
		return nil
	}
	return changeGroup(ctx, root, ".", top, deviceID(top), gid, 0)
}

func hasGroup(fi fs.FileInfo, gid int) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	want := fs.FileMode(groupFiles | 0o110)
	return ok && int(st.Gid) == gid && fi.Mode().Perm()&want == want && fi.Mode()&fs.ModeSetgid != 0
}

func deviceID(fi fs.FileInfo) uint64 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev) //nolint:unconvert // the field's size depends on the architecture
	}
	return 0
}

// changeGroup changes one file. If the file is a directory, it changes the content first. A file that is removed
// meanwhile is not an error.
func changeGroup(ctx context.Context, root *os.Root, name string, fi fs.FileInfo, dev uint64, gid, depth int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deviceID(fi) != dev {
		return nil
	}
	if fi.IsDir() {
		if err := changeGroupBelow(ctx, root, name, dev, gid, depth+1); err != nil {
			return err
		}
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	changed := !ok || int(st.Gid) != gid
	if changed {
		if err := root.Lchown(name, -1, gid); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if fi.Mode()&fs.ModeSymlink != 0 {
		return nil
	}
	old := fi.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	mode := old | groupFiles
	if fi.IsDir() {
		mode |= groupDirs
	}
	if !changed && mode == old { // the change of the group has removed setuid and setgid
		return nil
	}
	if err := root.Chmod(name, mode); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func changeGroupBelow(ctx context.Context, root *os.Root, name string, dev uint64, gid, depth int) error {
	if depth > maxDepth {
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
			if err := changeGroup(ctx, root, child, fi, dev, gid, depth); err != nil {
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
