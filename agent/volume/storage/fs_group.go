package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
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

// groupOf returns the pod's security context if its fsGroup applies to the volume and the driver is a Grouper. Otherwise it returns nil.
func groupOf(v Volume, d Driver, u Use) *v1.PodSecurityContext {
	sc := u.Pod.Spec.SecurityContext
	if _, ok := d.(Grouper); v.Block || v.ReadOnly || !ok || sc == nil || sc.FSGroup == nil {
		return nil
	}
	return sc
}

// mustChangeGroup reports whether the group of all files must be changed even if the top directory has the group. This is not
// necessary if the pod's policy says so or if another pod uses the volume, unless such a change is pending: the other pod
// may not need the group, or its change may not have ended successfully. The caller holds the volume's lock. The Grouper is
// not asked here, because it may not have registered yet.
func (k *Mounter) mustChangeGroup(v Volume, d Driver, u Use) bool {
	sc := groupOf(v, d, u)
	if sc == nil || sc.FSGroupChangePolicy != nil && *sc.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch {
		return false
	}
	return !k.usedByOthers(v.ID, string(u.Pod.UID)) || k.isGroupPending(v.ID)
}

// isGroupPending reports whether a change of the group of all files is pending for a pod that uses the volume.
func (k *Mounter) isGroupPending(id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, r := range k.rows {
		if key.Volume == id && r.GroupPending {
			return true
		}
	}
	return false
}

// endGroupChange records that the group of all files has been changed for a pod. If all is true, the group has been changed just now, so no
// other pod needs this change any more. Each other pod updates its own row in the ledger, because the pod may end meanwhile.
func (k *Mounter) endGroupChange(ctx context.Context, key store.VolumeKey, all bool) {
	k.updates.Lock()
	k.mu.Lock()
	for other, r := range k.rows {
		if all && other.Volume == key.Volume && r.GroupPending {
			r.GroupPending = false
			k.rows[other] = r
		}
	}
	k.mu.Unlock()
	k.updates.Unlock()
	if err := k.updateRow(ctx, key, func(r *record) { r.GroupPending = false }); err != nil {
		k.cfg.Log.Warn("cannot record that the group of a volume's files has been changed: it may be changed again",
			"volume", key.Volume, "path", key.Path, "error", err)
	}
}

// applyFSGroup changes the group of a volume's files to the pod's fsGroup, if its driver is a
// Grouper. The caller has locked the pod's use of the volume, but not the volume. r is the row of the use.
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/ (change policy for volumes)
func (k *Mounter) applyFSGroup(ctx context.Context, d Driver, u Use, key store.VolumeKey, r record) error {
	v := r.Volume
	sc := groupOf(v, d, u)
	if sc == nil || !d.(Grouper).SetsGroup(v, u) {
		return nil
	}
	ctx, end := longStep(ctx, fmt.Sprintf("the group of the volume's files is being changed to %d", *sc.FSGroup))
	defer end()
	unlock, err := k.lock(ctx, volumeUse{id: "group of " + v.ID}) // two pods must not change the files of a volume at the same time
	if err != nil {
		return err
	}
	defer unlock()
	// If no change is pending for the pod, the files are changed only if the top directory has a different group. The
	// change for another pod may have ended while this one waited.
	k.mu.Lock()
	lazy := !k.rows[key].GroupPending
	k.mu.Unlock()
	if lazy && v.Source.Local != nil && k.mountedByOther(v.ID, key.Pod) {
		if err := k.checkGroup(ctx, u, v.Name, *sc.FSGroup); errors.Is(err, errOtherGroup) {
			if r.GroupPending {
				k.endGroupChange(ctx, key, false)
			}
			return nil
		} else if err != nil {
			return err
		}
	}
	// When ctx ends, the change ends after the current file. The call returns only then, because an open file would keep the file system
	// mounted.
	wait, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(probeTime, stop) })()
	if err := CallOrAbandon(wait, "group", u.Path, func() error { return k.setGroup(ctx, u.Path, int(*sc.FSGroup), lazy) }); err != nil {
		return fmt.Errorf("MountVolume.SetUp failed for volume %q : applyFSGroup failed for vol %s: %w", v.Name, v.Name, err)
	}
	if r.GroupPending {
		k.endGroupChange(ctx, key, !lazy)
	}
	return nil
}

// mountedByOther reports whether a volume is mounted for a pod other than the given one.
func (k *Mounter) mountedByOther(id, pod string) bool {
	var others []store.VolumeKey
	k.mu.Lock()
	for key := range k.rows {
		if key.Volume == id && key.Pod != "" && key.Pod != pod {
			others = append(others, key)
		}
	}
	k.mu.Unlock()
	return slices.ContainsFunc(others, k.isUp)
}

// errOtherGroup means that a local volume has another group, which another pod uses.
var errOtherGroup = errors.New("the volume has another group")

// checkGroup returns errOtherGroup and records an event if the group of a local volume that another pod uses is not the given one. Like a
// kubelet, a node sets the group of a local volume only for the first pod, because the files of a running pod must not change.
func (k *Mounter) checkGroup(ctx context.Context, u Use, volume string, gid int64) error {
	ctx, stop := context.WithTimeout(ctx, probeTime)
	defer stop()
	err := CallOrAbandon(ctx, "read the group", u.Path, func() error {
		var st unix.Stat_t
		if err := unix.Lstat(u.Path, &st); err != nil || int64(st.Gid) == gid {
			return err
		}
		k.recordEvent(u.Pod, v1.EventTypeWarning, "AlreadyMountedVolume",
			fmt.Sprintf("The requested fsGroup is %d, but the volume %s has GID %d. The volume may not be shareable.", gid, volume, st.Gid))
		return errOtherGroup
	})
	if err != nil {
		return fmt.Errorf("MountVolume.SetUp failed for volume %q : failed to check fsGroup for %s: %w", volume, u.Path, err)
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
