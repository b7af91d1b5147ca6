package ctrd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
)

// maxLayersWithPoints is the maximum number of layers of an image that get the layer of mount points. The mount options of more layers are
// longer than a page, and are then shortened by the directory that all layers have in common.
const maxLayersWithPoints = 32

// Mount points of every container, and the directory etc, which contains some of them.
var (
	pointDirs  = []string{"dev", "etc", "proc", "sys"}
	pointFiles = []string{"etc/hostname", "etc/hosts", "etc/resolv.conf"}
)

// withMountPoints adds a layer with mount points below the layers of an image. Without this layer, the OCI runtime creates the mount points
// that the image lacks in the writable layer, which costs CPU time and writes to the disk at the start and the end of each container. The
// layer is in the file system of the writable layers, because an overlay of layers of several file systems reports other device numbers.
func (r *Runtime) withMountPoints(layers []string) []string {
	dir := filepath.Join(r.c.StateDir, "points")
	if len(layers) >= maxLayersWithPoints || makeMountPoints(dir) != nil {
		return layers
	}
	return append(slices.Clip(layers), dir)
}

// makeMountPoints creates the mount points below dir if they are missing. The last file exists only if all others exist.
func makeMountPoints(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, pointFiles[len(pointFiles)-1])); err == nil {
		return nil
	}
	for _, name := range pointDirs {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, 0o755)); err != nil {
			return err
		}
	}
	for _, name := range pointFiles {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o644), os.Chmod(path, 0o644)); err != nil {
			return err
		}
	}
	return nil
}
