package ctrd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/sorting"
	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/ocispec"
	"github.com/islet-edge/islet/runtime/tree"
)

// imageVolumes is the subdirectory of a container's directory that has one numbered directory for
// each VOLUME of its image. The directories are on the disk, not in an overlay. They count as part
// of the container's writable layer and are removed with the container.
const imageVolumes = "volumes"

// Limits of an image's VOLUMEs. Each volume is an additional mount of every container of the image.
const (
	maxVolumes     = 64
	maxVolumeDepth = 64   // number of components of a path
	maxVolumePath  = 4095 // bytes
	maxVolumeLinks = 40   // number of symlinks that are followed to resolve one path
)

// reservedPaths are the paths where the runtime itself mounts something. An image cannot have a
// volume at or below one of them.
var reservedPaths = []string{"/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// makeImageVolumes creates a directory for each VOLUME of a container's image, and copies the files
// of the image at that path into it. The container's root file system must be mounted, and no
// process may have run in it.
//
// A volume is skipped if its path is at or below a mount of the pod, which has the pod's data, or
// at or below a path in reservedPaths. Paths in an image may contain symlinks. They are resolved
// here, so that no path leads into /proc when the volume is mounted.
func (r *Runtime) makeImageVolumes(
	ctx context.Context, s *sandbox, c *container, declared map[string]struct{},
) ([]ocispec.Volume, error) {
	if len(declared) == 0 {
		return nil, nil
	}
	paths, err := volumePaths(declared)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(r.bundlePath(c.rec.ID), rootfsDir)
	covered := slices.Clone(reservedPaths)
	for _, m := range c.config.GetMounts() {
		mountPath := path.Join("/", m.GetContainerPath())
		covered = append(covered, mountPath)
		if at, dir, err := resolveInRoot(root, mountPath, 0); err == nil {
			dir.Close()
			covered = append(covered, at)
		}
	}
	base := filepath.Join(r.containerDir(c.rec.ID), imageVolumes)
	if err := os.Mkdir(base, 0o711); err != nil {
		return nil, err
	}
	room, err := tree.HalfOfFree(base)
	if err != nil {
		return nil, err
	}
	var out []ocispec.Volume
	for i, p := range paths {
		skip := func(at string) bool {
			return at == "/" || slices.ContainsFunc(covered, func(c string) bool { return at == c || isBelow(at, c) }) ||
				slices.ContainsFunc(out, func(o ocispec.Volume) bool { return o.Path == at })
		}
		if skip(p) {
			continue
		}
		v, err := r.makeImageVolume(ctx, s, root, p, filepath.Join(base, strconv.Itoa(i)), skip, &room)
		if err != nil {
			return nil, fmt.Errorf("volume %s of the image: %w", p, err)
		}
		if v.Path != "" {
			out = append(out, v)
		}
	}
	c.rec.ImageVolumes = len(out)
	sorting.StableBy(out, func(a, b ocispec.Volume) int { return strings.Count(a.Path, "/") - strings.Count(b.Path, "/") })
	return out, nil
}

// volumePaths returns the paths of an image's VOLUMEs, cleaned and sorted.
func volumePaths(declared map[string]struct{}) ([]string, error) {
	if len(declared) > maxVolumes {
		return nil, fmt.Errorf("the image declares %d volumes; the limit is %d: %w", len(declared), maxVolumes, errdefs.ErrInvalidArgument)
	}
	var out []string
	for _, p := range slices.Sorted(maps.Keys(declared)) {
		clean := path.Join("/", p)
		if len(p) > maxVolumePath || strings.Count(clean, "/") > maxVolumeDepth || strings.ContainsRune(p, 0) {
			return nil, fmt.Errorf("volume %.100q of the image: a path has at most %d bytes and %d components: %w",
				p, maxVolumePath, maxVolumeDepth, errdefs.ErrInvalidArgument)
		}
		if !slices.Contains(out, clean) {
			out = append(out, clean)
		}
	}
	return out, nil
}

// makeImageVolume creates the host directory of an image's volume. The function skip receives the volume's path with all symlinks
// resolved. If it returns true, makeImageVolume creates nothing and the result has an empty Path.
func (r *Runtime) makeImageVolume(
	ctx context.Context, s *sandbox, root, p, to string, skip func(at string) bool, room *tree.Room,
) (v ocispec.Volume, err error) {
	at, from, err := resolveInRoot(root, p, 0)
	if err != nil {
		return v, err
	}
	defer from.Close() // from may be nil
	if skip(at) {
		return v, nil
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return v, err
	}
	v = ocispec.Volume{Path: at, Source: to}
	if from == nil { // the image has no such directory: root owns the new one, and its mode does not depend on the umask
		return v, errors.Join(s.chown(to), os.Chmod(to, 0o755))
	}
	dir, err := os.Open(to)
	if err != nil {
		return v, err
	}
	defer dir.Close()
	if err = tree.Copy(ctx, from, dir, room); errors.Is(err, tree.ErrNoRoom) {
		err = fmt.Errorf("%w: the image's volumes may use half of the free disk space: free some, or mount a volume at that path", err)
	}
	return v, err
}

func isBelow(p, dir string) bool { return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }

// resolveInRoot resolves all symlinks of a path in a root file system and opens the directory. The opened directory is nil if it does not
// exist yet. Dangling symlinks are resolved too, because their target may exist once the runtime has mounted something.
func resolveInRoot(root, p string, links int) (at string, dir *os.File, err error) {
	if p = path.Join("/", p); p == "/" || links > maxVolumeLinks || len(p) > maxVolumePath || strings.Count(p, "/") > maxVolumeDepth {
		if p == "/" {
			return p, nil, nil
		}
		return "", nil, unix.ELOOP
	}
	if dir, err = untrusted.OpenDirInRoot(root, p); err == nil {
		if at, err = pathInRoot(root, dir); err != nil {
			dir.Close()
			return "", nil, err
		}
		return at, dir, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	parent, in, err := resolveInRoot(root, path.Dir(p), links)
	if err != nil {
		return "", nil, err
	}
	defer in.Close()
	at = path.Join(parent, path.Base(p))
	if in == nil && parent != "/" {
		return at, nil, nil
	}
	target, err := os.Readlink(filepath.Join(root, at)) // the parent is already resolved
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return at, nil, nil
	case errors.Is(err, unix.EINVAL):
		return "", nil, fmt.Errorf("%s is not a directory", at)
	case err != nil:
		return "", nil, err
	case !path.IsAbs(target):
		target = path.Join(parent, target)
	}
	return resolveInRoot(root, target, links+1)
}

// pathInRoot returns the path of an open directory relative to root. It begins with a slash.
func pathInRoot(root string, dir *os.File) (string, error) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", err
	}
	at, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return "", err
	}
	if at == real {
		return "/", nil
	}
	if in, ok := strings.CutPrefix(at, real+"/"); ok {
		return "/" + in, nil
	}
	return "", fmt.Errorf("%s is not below %s", at, real)
}

// mountsOf converts an image's volumes to CRI mounts.
func mountsOf(volumes []ocispec.Volume) (out []*api.Mount) {
	for _, v := range volumes {
		out = append(out, &api.Mount{ContainerPath: v.Path, HostPath: v.Source, SelinuxRelabel: true})
	}
	return out
}
