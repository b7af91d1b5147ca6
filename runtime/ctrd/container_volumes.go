package ctrd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/runtime/daemon"
	"github.com/islet-edge/islet/runtime/mounts"
	"github.com/islet-edge/islet/runtime/selinux"
)

// volumesDir is the directory in a bundle where image volumes are mounted until the container has
// started.
const volumesDir = "images"

// mountOptions are the options that a container may add to a mount (KEP-5855). Other options could
// undo restrictions of the host's mount.
var mountOptions = []string{"noexec", "nodev", "nosuid"}

// checkMounts rejects mounts that the CRI forbids or that this host cannot mount.
func (r *Runtime) checkMounts(s *sandbox, all []*api.Mount) error {
	for _, m := range all {
		reason := ""
		switch {
		case m.GetImage() != nil && m.GetHostPath() != "":
			reason = "has both an image and a host path"
		case m.GetImage() == nil && m.GetImageSubPath() != "":
			reason = "has a sub path of an image, but no image"
		case m.GetImage() != nil && m.GetImage().GetImage() == "":
			reason = "has an image without a name"
		case m.GetImage() == nil && m.GetHostPath() == "":
			reason = "has neither a host path nor an image"
		case mappingFault(s, m) != "":
			reason = mappingFault(s, m)
		case slices.ContainsFunc(m.GetMountOptions(), func(o string) bool { return !slices.Contains(mountOptions, o) }):
			reason = fmt.Sprintf("has a mount option other than %q", mountOptions)
		case m.GetRecursiveReadOnly() && !m.GetReadonly():
			reason = "is recursively read-only, but not read-only"
		case m.GetRecursiveReadOnly() && m.GetPropagation() != api.MountPropagation_PROPAGATION_PRIVATE:
			reason = "is recursively read-only, so it must not have a propagation"
		case m.GetRecursiveReadOnly() && !r.abilities.Get(s.oci.Path).ReadOnlyTrees:
			reason = "is recursively read-only, which needs Linux 5.12 and runc 1.1 or crun 1.4"
		}
		if reason != "" {
			return fmt.Errorf("mount %s %s: %w", m.GetContainerPath(), reason, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// mountVolumes mounts the image volumes of a container (KEP-4639) in its bundle. It returns a copy
// of the configuration with the host paths of these mounts. A running container has its own copies
// of the mounts, so unmountVolumes removes them from the host after the start.
func (r *Runtime) mountVolumes(ctx context.Context, c *container, label string, users *os.File) (*api.ContainerConfig, error) {
	cfg := c.config
	for i, m := range c.config.GetMounts() {
		if m.GetImage() == nil {
			continue
		}
		if cfg == c.config {
			cfg = proto.CloneOf(c.config)
		}
		img, err := r.c.Images.Resolve(ctx, m.GetImage().GetImage())
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.GetContainerPath(), err)
		}
		target := filepath.Join(r.bundlePath(c.rec.ID), volumesDir, strconv.Itoa(i))
		c.rec.Volumes = append(c.rec.Volumes, img.ChainID)
		r.views.hold(img.ChainID)
		if err := r.mountImage(ctx, img.ChainID, target, label, users); err != nil {
			return nil, fmt.Errorf("mount image %s at %s: %w", m.GetImage().GetImage(), m.GetContainerPath(), err)
		}
		if sub := m.GetImageSubPath(); sub != "" {
			if target, err = subPath(target, sub); err != nil {
				return nil, fmt.Errorf("mount image %s at %s: %w", m.GetImage().GetImage(), m.GetContainerPath(), err)
			}
		}
		out := cfg.Mounts[i]
		out.HostPath, out.Readonly, out.SelinuxRelabel, out.Propagation = target, true, false, api.MountPropagation_PROPAGATION_PRIVATE
		out.UidMappings, out.GidMappings = nil, nil // users determines the owners of the files
	}
	return cfg, nil
}

// mountImage mounts the layers of an image read-only at target. If users is not nil, the owners of
// the files are mapped to that user namespace.
func (r *Runtime) mountImage(ctx context.Context, chain, target, label string, users *os.File) (err error) {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	layers, err := r.layersOf(ctx, chain)
	if err != nil {
		return fmt.Errorf("list the image's layers: %w", err)
	}
	flags := []string{"ro", "nosuid", "nodev", "noexec"}
	if len(layers) == 0 {
		return mount.All([]mount.Mount{{Type: "tmpfs", Source: "image", Options: append(flags, "size=4k")}}, target)
	}
	if r.c.Daemon.Snapshotter() != daemon.Overlay && users != nil {
		return mounts.BindIDMapped(layers[0], target, users, true)
	}
	if r.c.Daemon.Snapshotter() != daemon.Overlay {
		return mount.All([]mount.Mount{{Type: "bind", Source: layers[0], Options: append(flags, "bind", "rprivate")}}, target)
	}
	if users != nil {
		var done func() error
		if layers, done, err = shiftLayers(layers, target+"."+shiftedLayers, users); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, done()) }()
	}
	if len(layers) == 1 { // an overlay without an upper directory needs at least two lower directories
		empty := target + ".none"
		if err := os.MkdirAll(empty, 0o755); err != nil {
			return err
		}
		layers = append(layers[:1:1], empty)
	}
	m := mount.Mount{Type: "overlay", Source: "overlay", Options: append(flags, overlayLowers(layers)...)}
	if label != "" {
		m.Options = append(m.Options, selinux.MountOption(label))
	}
	return mount.All([]mount.Mount{m}, target)
}

// subPath returns the path of a directory of an image below the image's mount. Symlinks are
// resolved inside the image. The result stays valid, because the mount is read-only.
func subPath(root, sub string) (string, error) {
	f, err := untrusted.OpenDirInRoot(root, sub)
	if err != nil {
		return "", fmt.Errorf("sub path %q: %w", sub, err)
	}
	defer f.Close()
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// unmountVolumes removes the mounts of mountVolumes.
func (r *Runtime) unmountVolumes(id string) error {
	dir := filepath.Join(r.bundlePath(id), volumesDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	for _, e := range entries {
		if err := unmount(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
