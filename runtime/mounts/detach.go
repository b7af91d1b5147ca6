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

// Below lists the mount points below a directory, not that of the directory
// itself, oldest first. Nothing is below a directory that does not exist.
func Below(dir string) ([]string, error) {
	tree, err := find(dir)
	if err != nil {
		return nil, err
	}
	return tree.points(tree.below), nil
}

// At returns the mount that a path is in: of several at one place the uppermost.
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

// Detach leaves nothing mounted at path and below, or reports what is. Mounts of
// the host from which these were bound stay as they are.
func Detach(path string) error { return detach(path, func(t *tree) []*mountinfo.Info { return t.all }) }

// DetachBelow is Detach for what is below a directory: a mount at the directory
// itself is not islet's and stays.
func DetachBelow(dir string) error {
	return detach(dir, func(t *tree) []*mountinfo.Info { return t.below })
}

// rounds bounds how often something may be mounted meanwhile.
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
			// Of all below it too, in one step. What is no mount point any more is no error.
			if err := unix.Mount("", p, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("make the mount %s private: %w", p, err)
			}
		}
		if tree, err = find(path); err != nil {
			return err
		}
		todo := which(tree)
		if m := tree.shared(todo); m != nil {
			return fmt.Errorf("%s is mounted over another mount that is shared with the host: unmount it where the host mounted it", m.Mountpoint)
		}
		points := tree.points(todo)
		errs = errs[:0]
		for _, p := range slices.Backward(points) {
			err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it went with another
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

// A tree is what is mounted at and below a path.
type tree struct {
	mounted []*mountinfo.Info // anywhere
	all     []*mountinfo.Info // at the path and below, oldest first
	below   []*mountinfo.Info
}

func find(path string) (*tree, error) {
	// Links above the last element are the administrator's; the last may be a container's.
	parent, err := filepath.EvalSymlinks(filepath.Dir(filepath.Clean(path)))
	if errors.Is(err, fs.ErrNotExist) {
		return &tree{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for mounts below %s: %w", path, err)
	}
	real := filepath.Join(parent, filepath.Base(filepath.Clean(path)))
	all, err := mounted()
	if err != nil {
		return nil, fmt.Errorf("look for mounts below %s: %w", path, err)
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

// shared finds one of the mounts that lies on another of the path's which still
// has peers elsewhere, since to unmount it would unmount something of theirs.
// Cutting off reaches only what is on top: another may be hidden below it.
func (t *tree) shared(of []*mountinfo.Info) *mountinfo.Info {
	for _, m := range of {
		for _, under := range of {
			group := peers(under)
			if m.Parent != under.ID || m.ID == under.ID || group == "" {
				continue
			}
			if slices.ContainsFunc(t.mounted, func(o *mountinfo.Info) bool { return peers(o) == group && !slices.Contains(t.all, o) }) {
				return m
			}
		}
	}
	return nil
}

// peers is the peer group of a mount; "" if it has none.
func peers(m *mountinfo.Info) string {
	for f := range strings.FieldsSeq(m.Optional) {
		if group, ok := strings.CutPrefix(f, "shared:"); ok {
			return group
		}
	}
	return ""
}

// outermost drops the paths that are below another.
func outermost(paths []string) (out []string) {
	for _, p := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		if !slices.ContainsFunc(out, func(o string) bool { return strings.HasPrefix(p, o+"/") }) {
			out = append(out, p)
		}
	}
	return out
}
