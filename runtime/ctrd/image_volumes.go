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

	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/ocispec"
	"github.com/islet-edge/islet/runtime/tree"
)

// imageVolumes is where in its directory a container has a directory for each VOLUME of its
// image, numbered. They are on the disk and not in an overlay, count as what the container
// wrote, and go with it.
const imageVolumes = "volumes"

// What an image may declare. Each volume costs a mount of every container.
const (
	maxVolumes     = 64
	maxVolumeDepth = 64   // components of a path
	maxVolumePath  = 4095 // bytes
	maxVolumeLinks = 40   // symlinks that lead nowhere, on the way to one place
)

// taken are the places that the runtime itself mounts, with all that is below: an image has
// no volume there.
var taken = []string{"/proc", "/sys", "/dev", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// makeImageVolumes makes a directory for each VOLUME of a container's image, with a copy of
// what the image has there. It is for a container whose root file system is mounted and in
// which nothing has run.
//
// No volume is made at or below a mount of the pod's own, as the pod's data are there, nor
// at a place that the runtime mounts. An image says with symlinks where its volumes are:
// those are resolved here, so that none can lead to /proc at the time of the mount.
func (r *Runtime) makeImageVolumes(ctx context.Context, s *sandbox, c *container, declared map[string]struct{}) ([]ocispec.Volume, error) {
	if len(declared) == 0 {
		return nil, nil
	}
	paths, err := volumePaths(declared)
	if err != nil {
		return nil, err
	}
	root := filepath.Join(r.bundle(c.rec.ID), rootfs)
	covered := slices.Clone(taken)
	for _, m := range c.config.GetMounts() {
		own := path.Join("/", m.GetContainerPath())
		covered = append(covered, own)
		if at, dir, err := placeInRoot(root, own, 0); err == nil {
			dir.Close()
			covered = append(covered, at)
		}
	}
	all := filepath.Join(r.containerDir(c.rec.ID), imageVolumes)
	if err := os.Mkdir(all, 0o711); err != nil {
		return nil, err
	}
	room, err := tree.Half(all)
	if err != nil {
		return nil, err
	}
	var out []ocispec.Volume
	for i, p := range paths {
		skip := func(at string) bool {
			return at == "/" || slices.ContainsFunc(covered, func(c string) bool { return at == c || below(at, c) }) ||
				slices.ContainsFunc(out, func(o ocispec.Volume) bool { return o.Path == at })
		}
		if skip(p) {
			continue
		}
		v, err := r.makeImageVolume(ctx, s, root, p, filepath.Join(all, strconv.Itoa(i)), skip, &room)
		if err != nil {
			return nil, fmt.Errorf("volume %s of the image: %w", p, err)
		}
		if v.Path != "" {
			out = append(out, v)
		}
	}
	c.rec.ImageVolumes = len(out)
	slices.SortStableFunc(out, func(a, b ocispec.Volume) int { return strings.Count(a.Path, "/") - strings.Count(b.Path, "/") })
	return out, nil
}

// volumePaths returns the paths of an image's VOLUMEs, absolute and sorted.
func volumePaths(declared map[string]struct{}) ([]string, error) {
	if len(declared) > maxVolumes {
		return nil, fmt.Errorf("the image declares %d volumes, and may have %d: %w", len(declared), maxVolumes, errdefs.ErrInvalidArgument)
	}
	var out []string
	for _, p := range slices.Sorted(maps.Keys(declared)) {
		clean := path.Join("/", p)
		if len(p) > maxVolumePath || strings.Count(clean, "/") > maxVolumeDepth || strings.ContainsRune(p, 0) {
			return nil, fmt.Errorf("volume %.100q of the image: a path has at most %d bytes and %d components: %w", p, maxVolumePath, maxVolumeDepth, errdefs.ErrInvalidArgument)
		}
		if !slices.Contains(out, clean) {
			out = append(out, clean)
		}
	}
	return out, nil
}

// makeImageVolume makes the directory to for the volume p. The result has no Path when skip
// says that no volume belongs there.
func (r *Runtime) makeImageVolume(ctx context.Context, s *sandbox, root, p, to string, skip func(at string) bool, room *tree.Room) (v ocispec.Volume, err error) {
	at, from, err := placeInRoot(root, p, 0)
	if err != nil {
		return v, err
	}
	defer from.Close() // of nil, too
	if skip(at) {
		return v, nil
	}
	if err := os.Mkdir(to, 0o700); err != nil {
		return v, err
	}
	v = ocispec.Volume{Path: at, Source: to}
	if from == nil { // root's, for the image says nothing else; whatever the umask
		return v, errors.Join(s.give(to), os.Chmod(to, 0o755))
	}
	dir, err := os.Open(to)
	if err != nil {
		return v, err
	}
	defer dir.Close()
	if err = tree.Copy(ctx, from, dir, room); errors.Is(err, tree.ErrNoRoom) {
		err = fmt.Errorf("%w: the image's volumes may take half of the free disk: free some, or mount a volume there", err)
	}
	return v, err
}

func below(p, dir string) bool { return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }

// placeInRoot says where the directory p is in a root file system when every symlink on the
// way is followed, and opens it; dir is nil when it is not there yet. A symlink to what is
// not there is followed, too, as it may be there once the runtime has mounted something.
func placeInRoot(root, p string, links int) (at string, dir *os.File, err error) {
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
	parent, in, err := placeInRoot(root, path.Dir(p), links)
	if err != nil {
		return "", nil, err
	}
	defer in.Close()
	at = path.Join(parent, path.Base(p))
	if in == nil && parent != "/" {
		return at, nil, nil
	}
	target, err := os.Readlink(filepath.Join(root, at)) // its parent has no symlinks
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
	return placeInRoot(root, target, links+1)
}

// pathInRoot is the path of an open directory below root.
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

// mountsOf are an image's volumes in the form of a container's mounts.
func mountsOf(volumes []ocispec.Volume) (out []*api.Mount) {
	for _, v := range volumes {
		out = append(out, &api.Mount{ContainerPath: v.Path, HostPath: v.Source, SelinuxRelabel: true})
	}
	return out
}
