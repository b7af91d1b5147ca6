package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// ListBelow returns the mount points below a directory, oldest first. They do not include the directory itself. It returns no mount points
// if the directory does not exist.
func ListBelow(dir string) ([]string, error) {
	tree, err := findTree(dir)
	if err != nil {
		return nil, err
	}
	return tree.mountPoints(tree.below), nil
}

// FindContaining returns the mount that contains a path. If mounts are stacked, it returns the topmost one.
func FindContaining(path string) (*mountinfo.Info, error) {
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	id, err := mountOf(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	found, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return fmt.Sprint(m.ID) != id, false })
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("the mount of %s is not in the mount table", path)
	}
	if err != nil {
		return nil, err
	}
	return found[0], nil
}

// Detach unmounts all mounts at and below path. It returns an error if a mount remains. Unmounting
// does not propagate to copies of these mounts elsewhere on the host.
func Detach(path string) error {
	return detachMounts(path, func(t *tree) []*mountinfo.Info { return t.all })
}

// DetachBelow is like Detach, but keeps a mount at the directory itself, which does not belong to
// islet.
func DetachBelow(dir string) error {
	return detachMounts(dir, func(t *tree) []*mountinfo.Info { return t.below })
}

// maxRounds is the maximum number of attempts. A second attempt is needed if a file system was
// mounted during the first attempt.
const maxRounds = 3

func detachMounts(path string, selectMounts func(*tree) []*mountinfo.Info) error {
	var errs []error
	for range maxRounds {
		tree, err := findTree(path)
		if err != nil {
			return err
		}
		if len(selectMounts(tree)) == 0 {
			return nil
		}
		for _, p := range outermostPaths(tree.mountPoints(selectMounts(tree))) {
			// Ignore the errors for a mount point that no longer exists.
			err := unix.Mount("", p, "", unix.MS_REC|unix.MS_PRIVATE, "")
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("make the mount %s private: %w", p, err)
			}
		}
		if tree, err = findTree(path); err != nil {
			return err
		}
		todo := selectMounts(tree)
		if m := tree.findShared(todo); m != nil {
			return fmt.Errorf("%s is mounted over another mount that is shared with the host: unmount it where the host mounted it",
				m.Mountpoint)
		}
		points := tree.mountPoints(todo)
		errs = errs[:0]
		for _, p := range slices.Backward(points) {
			err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // no longer mounted
				errs = append(errs, fmt.Errorf("unmount %s: %w", p, err))
			}
		}
	}
	tree, err := findTree(path)
	if err != nil {
		return err
	}
	if left := tree.mountPoints(selectMounts(tree)); len(left) > 0 {
		return fmt.Errorf("still mounted: %s: %w", strings.Join(left, ", "), errors.Join(errs...))
	}
	return nil
}

// A tree contains the mounts at and below a path.
type tree struct {
	mounted []*mountinfo.Info // all mounts of the mount namespace
	all     []*mountinfo.Info // mounts at and below the path, oldest first
	below   []*mountinfo.Info // mounts below the path, oldest first
}

func findTree(path string) (*tree, error) {
	// Resolve the symlinks above the last element, which the administrator created. Do not resolve
	// the last element, which may be a symlink that a container created.
	parent, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(path)))
	if errors.Is(err, fs.ErrNotExist) {
		return &tree{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list mounts below %s: %w", path, err)
	}
	real := filepath.Join(parent, filepath.Base(filepath.Clean(path)))
	all, err := mountTable()
	if err != nil {
		return nil, fmt.Errorf("list mounts below %s: %w", path, err)
	}
	t := &tree{mounted: all}
	for _, m := range all {
		below := strings.HasPrefix(m.Mountpoint, real+"/")
		if below {
			t.below = append(t.below, m)
		}
		if below || m.Mountpoint == real {
			t.all = append(t.all, m)
		}
	}
	return t, nil
}

func (*tree) mountPoints(list []*mountinfo.Info) []string {
	var all []string
	for _, m := range list {
		all = append(all, m.Mountpoint)
	}
	return all
}

// findShared returns a mount of the list that Detach must not unmount, or nil. Such a mount is stacked on another mount of
// the list, which has peers outside of the tree. Unmounting the upper mount would propagate to the peers. Detach cannot
// prevent this, because only the topmost mount of a stack can be made private.
func (t *tree) findShared(list []*mountinfo.Info) *mountinfo.Info {
	for _, m := range list {
		for _, under := range list {
			group := peerGroup(under)
			if m.Parent != under.ID || m.ID == under.ID || group == "" {
				continue
			}
			isPeer := func(o *mountinfo.Info) bool { return peerGroup(o) == group && !slices.Contains(t.all, o) }
			if slices.ContainsFunc(t.mounted, isPeer) {
				return m
			}
		}
	}
	return nil
}

// peerGroup returns the ID of the peer group of a mount, or "" if the mount is not shared.
func peerGroup(m *mountinfo.Info) string {
	for f := range strings.FieldsSeq(m.Optional) {
		if group, ok := strings.CutPrefix(f, "shared:"); ok {
			return group
		}
	}
	return ""
}

// outermostPaths returns the paths that are not below another path of the list.
func outermostPaths(paths []string) (out []string) {
	for _, p := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		if !slices.ContainsFunc(out, func(o string) bool { return strings.HasPrefix(p, o+"/") }) {
			out = append(out, p)
		}
	}
	return out
}
