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

// Below returns the mount points below a directory, without the directory itself. The oldest is
// first. The result is empty if the directory does not exist.
func Below(dir string) ([]string, error) {
	tree, err := find(dir)
	if err != nil {
		return nil, err
	}
	return tree.points(tree.below), nil
}

// At returns the mount that contains a path. If several mounts are stacked at the same place, it is
// the topmost.
func At(path string) (*mountinfo.Info, error) {
	f, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	id, err := mountOf(f)
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

// Detach unmounts everything at and below path. If something is still mounted, it returns an error.
// Copies of these mounts elsewhere on the host are not affected.
func Detach(path string) error { return detach(path, func(t *tree) []*mountinfo.Info { return t.all }) }

// DetachBelow is like Detach, but only for mounts below a directory. A mount at the directory
// itself does not belong to islet and remains.
func DetachBelow(dir string) error {
	return detach(dir, func(t *tree) []*mountinfo.Info { return t.below })
}

// rounds is the maximum number of attempts. Several may be needed, because something may be mounted
// meanwhile.
const rounds = 3

func detach(path string, which func(*tree) []*mountinfo.Info) error {
	var errs []error
	for range rounds {
		tree, err := find(path)
		if err != nil {
			return err
		}
		if len(which(tree)) == 0 {
			return nil
		}
		for _, p := range outermost(tree.points(which(tree))) {
			// MS_REC includes all mounts below. Ignore the error that p is not a mount point any
			// more.
			err := unix.Mount("", p, "", unix.MS_REC|unix.MS_PRIVATE, "")
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("make the mount %s private: %w", p, err)
			}
		}
		if tree, err = find(path); err != nil {
			return err
		}
		todo := which(tree)
		if m := tree.shared(todo); m != nil {
			return fmt.Errorf("%s is mounted over another mount that is shared with the host: unmount it where the host mounted it",
				m.Mountpoint)
		}
		points := tree.points(todo)
		errs = errs[:0]
		for _, p := range slices.Backward(points) {
			err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // unmounted together with another
				errs = append(errs, fmt.Errorf("unmount %s: %w", p, err))
			}
		}
	}
	tree, err := find(path)
	if err != nil {
		return err
	}
	if left := tree.points(which(tree)); len(left) > 0 {
		return fmt.Errorf("still mounted: %s: %w", strings.Join(left, ", "), errors.Join(errs...))
	}
	return nil
}

// A tree is the set of mounts at and below a path.
type tree struct {
	mounted []*mountinfo.Info // all mounts of the mount namespace
	all     []*mountinfo.Info // the mounts at and below the path, oldest first
	below   []*mountinfo.Info
}

func find(path string) (*tree, error) {
	// The administrator made any symlinks above the last element. The last element may be a
	// container's symlink, so it is not resolved.
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

func (*tree) points(of []*mountinfo.Info) []string {
	var all []string
	for _, m := range of {
		all = append(all, m.Mountpoint)
	}
	return all
}

// shared returns a mount of the tree that is stacked on another mount with peers elsewhere, or nil.
// Unmounting it would also unmount something at the peers. Detach can make only the topmost mount
// at a place private, and others may be hidden below it.
func (t *tree) shared(of []*mountinfo.Info) *mountinfo.Info {
	for _, m := range of {
		for _, under := range of {
			group := peers(under)
			if m.Parent != under.ID || m.ID == under.ID || group == "" {
				continue
			}
			isPeer := func(o *mountinfo.Info) bool { return peers(o) == group && !slices.Contains(t.all, o) }
			if slices.ContainsFunc(t.mounted, isPeer) {
				return m
			}
		}
	}
	return nil
}

// peers returns the peer group of a mount, or "" if it has none.
func peers(m *mountinfo.Info) string {
	for f := range strings.FieldsSeq(m.Optional) {
		if group, ok := strings.CutPrefix(f, "shared:"); ok {
			return group
		}
	}
	return ""
}

// outermost returns the paths that are not below another one of them.
func outermost(paths []string) (out []string) {
	for _, p := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		if !slices.ContainsFunc(out, func(o string) bool { return strings.HasPrefix(p, o+"/") }) {
			out = append(out, p)
		}
	}
	return out
}
