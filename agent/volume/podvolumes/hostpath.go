package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/runtime/mounts"
)

// hostPath is a path on the host. SetUp checks or creates it according to its type.
//
// https://kubernetes.io/docs/concepts/storage/volumes/#hostpath
type hostPath struct{}

func (hostPath) Plugin() string             { return "kubernetes.io/host-path" }
func (hostPath) Serves(vol *v1.Volume) bool { return vol.HostPath != nil }

// SetUp may block while the file server of the path does not respond.
func (hostPath) SetUp(_ context.Context, _ *v1.Pod, vol *v1.Volume, _ string) (string, error) {
	path, t := vol.HostPath.Path, v1.HostPathUnset
	if err := mounts.CheckResponding(path); err != nil {
		return "", err
	}
	if vol.HostPath.Type != nil {
		t = *vol.HostPath.Type
	}
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, makeHostPath(path, t)
	}
	if err != nil {
		return "", err
	}
	ok := true
	switch t {
	case v1.HostPathDirectory, v1.HostPathDirectoryOrCreate:
		ok = fi.IsDir()
	case v1.HostPathFile, v1.HostPathFileOrCreate:
		ok = fi.Mode().IsRegular()
	case v1.HostPathSocket:
		ok = fi.Mode()&fs.ModeSocket != 0
	case v1.HostPathCharDev:
		ok = fi.Mode()&fs.ModeCharDevice != 0
	case v1.HostPathBlockDev:
		ok = fi.Mode()&fs.ModeDevice != 0 && fi.Mode()&fs.ModeCharDevice == 0
	}
	if !ok {
		return "", fmt.Errorf("hostPath type check failed: %s is not a %s", path, t)
	}
	return path, nil
}

// makeHostPath creates a missing path if its type allows it. If no type is set, it creates a directory, as container
// runtimes do.
func makeHostPath(path string, t v1.HostPathType) error {
	switch t {
	case v1.HostPathUnset, v1.HostPathDirectoryOrCreate:
		return os.MkdirAll(path, 0o755)
	case v1.HostPathFileOrCreate: // its parent directory must exist
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return err
		}
		return createEmpty(path, 0o644)
	}
	return fmt.Errorf("hostPath type check failed: %s is not a %s: it does not exist", path, t)
}
