package ctrd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

// checkRootfs rejects an image whose /dev, /proc or /sys is not a directory. runc 1.1 creates and
// removes files below /dev by their host paths. If /dev were a symlink, those files could be
// anywhere on the host. No process has run in this root file system, so the result stays valid.
func checkRootfs(root string) error {
	for _, name := range []string{"dev", "proc", "sys"} {
		st, err := os.Lstat(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("check the image's /%s: %w", name, err)
		}
		if !st.IsDir() {
			return fmt.Errorf("the image's /%s is not a directory but %v: use an image in which it is a directory or does not exist",
				name, st.Mode())
		}
	}
	return nil
}

// checkParents rejects a container with a mount, a device or a working directory below a file that is not a directory. crun would open
// this file. Opening a FIFO never returns, and opening a device can have an effect on the host. If the pod replaces a directory of a
// volume after this check, the timeout of the start limits the damage.
func checkParents(root string, spec *specs.Spec) error {
	checked := map[string]bool{"/": true}
	check := func(mounted []specs.Mount, path string) error {
		parent := filepath.Dir(filepath.Join("/", path))
		if checked[parent] {
			return nil
		}
		checked[parent] = true
		top, below := locate(root, mounted, parent)
		if top == "" {
			return nil
		}
		d, err := untrusted.OpenDirInRoot(top, below)
		if errors.Is(err, unix.ENOTDIR) {
			return fmt.Errorf("%s cannot be created in the container, because a part of its path is not a directory: "+
				"use an image or a volume in which %s is a directory or does not exist", path, parent)
		}
		d.Close() // d is nil after another error, which the OCI runtime reports
		return nil
	}
	for i, m := range spec.Mounts {
		if err := check(spec.Mounts[:i], m.Destination); err != nil {
			return err
		}
	}
	for _, d := range spec.Linux.Devices {
		if err := check(spec.Mounts, d.Path); err != nil {
			return err
		}
	}
	return check(spec.Mounts, spec.Process.Cwd)
}
