package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hostPath implements Driver for PersistentVolumes whose source is a path on the host. Containers mount the path
// itself.
type hostPath struct{}

func (hostPath) Plugin() string                           { return "kubernetes.io/host-path" }
func (hostPath) Serves(s *v1.PersistentVolumeSource) bool { return s.HostPath != nil }
func (hostPath) PodPath(v Volume, _ string) string        { return filepath.Clean(v.Source.HostPath.Path) }

func (hostPath) Publish(ctx context.Context, v Volume, _ string, _ Use) error {
	return CallOrAbandon(ctx, "hostPath", v.Name, func() error { return checkHostPath(v) }) // the path may be on a file server
}

// checkHostPath checks or creates a path of the host according to its type.
func checkHostPath(v Volume) error {
	kind := v1.HostPathUnset
	if v.Source.HostPath.Type != nil {
		kind = *v.Source.HostPath.Type
	}
	path := filepath.Clean(v.Source.HostPath.Path)
	if !filepath.IsAbs(path) {
		return fmt.Errorf("invalid HostPath `%s`: it is not absolute", path)
	}
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && (kind == v1.HostPathUnset || kind == v1.HostPathDirectoryOrCreate) && !v.Block:
		return os.MkdirAll(path, 0o755)
	case err != nil:
		return fmt.Errorf("hostPath type check failed: %w", err)
	case v.Block:
		return checkBlock(path)
	case (kind == v1.HostPathDirectory || kind == v1.HostPathDirectoryOrCreate) && !fi.IsDir():
		return fmt.Errorf("hostPath type check failed: %s is not a directory", path)
	case (kind == v1.HostPathFile || kind == v1.HostPathFileOrCreate) && !fi.Mode().IsRegular():
		return fmt.Errorf("hostPath type check failed: %s is not a file", path)
	}
	return nil
}

// Unpublish does nothing, because the path belongs to the host.
func (hostPath) Unpublish(context.Context, Volume, types.UID, string) error { return nil }

// localDriver implements Driver for PersistentVolumes whose source is a disk, a partition or a directory on this node. A
// block device with a file system is first mounted for the node. Then the mount or the directory is bound into the
// pod's directory.
//
// https://kubernetes.io/docs/concepts/storage/volumes/#local
type localDriver struct{ root string }

func (localDriver) Plugin() string                           { return "kubernetes.io/local-volume" }
func (localDriver) Serves(s *v1.PersistentVolumeSource) bool { return s.Local != nil }
func (localDriver) SetsGroup(Volume, Use) bool               { return true }

// localID returns the ID of a local volume. It depends on the path only: claims of manifests with the same name, from two sources, have two
// PersistentVolumes and one directory. With two IDs, they could be used at the same time, also with ReadWriteOncePod.
func localID(s *v1.LocalVolumeSource) string {
	return "kubernetes.io/local-volume" + filepath.Join("/", s.Path)
}

// StagePath returns the path at which a block device is mounted for the node. It returns "" for a directory.
func (l localDriver) StagePath(v Volume) string {
	if v.Block || checkBlock(v.Source.Local.Path) != nil {
		return ""
	}
	return filepath.Join(l.root, "plugins", "kubernetes.io", "local-volume", "mounts", v.Name)
}

func (l localDriver) Stage(ctx context.Context, v Volume, path string, _ Use) error {
	s := v.Source.Local
	fsType := ""
	if s.FSType != nil {
		fsType = *s.FSType
	}
	if err := mountDevice(ctx, s.Path, path, fsType, v.ReadOnly, v.MountOptions); err != nil {
		return fmt.Errorf("local: failed to mount device %s at %s (fstype: %s), error %w", s.Path, path, fsType, err)
	}
	return nil
}

func (localDriver) Unstage(_ context.Context, _ Volume, path string) error {
	return unmountDevice(path)
}

func (l localDriver) Publish(ctx context.Context, v Volume, staged string, u Use) error {
	from := filepath.Clean(v.Source.Local.Path)
	if !filepath.IsAbs(from) {
		return fmt.Errorf("invalid path: %s is not absolute", from)
	}
	if v.Block {
		return linkDevice(from, u.Path)
	}
	if staged != "" {
		return bindMount(ctx, staged, u.Path, v.ReadOnly, nil)
	}
	if err := CallOrAbandon(ctx, "local", from, func() error { return checkDir(from) }); err != nil {
		return err
	}
	return bindMount(ctx, from, u.Path, v.ReadOnly, v.MountOptions)
}

func checkDir(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("path %q does not exist: %w", path, err)
	}
	if !fi.IsDir() {
		return errors.New("only directory and block device are supported")
	}
	return nil
}

func (localDriver) Unpublish(_ context.Context, v Volume, _ types.UID, path string) error {
	if v.Block {
		return unlinkDevice(path)
	}
	return removeBindMount(path)
}
