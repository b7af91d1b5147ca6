package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// keptAttempts is the number of termination logs of earlier attempts that are kept.
const keptAttempts = 4

// escapePlugin converts a plugin's name into a path element, like a kubelet.
func escapePlugin(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// checkUID returns an error for a UID that could lead out of the pods' directory. UIDs are read from labels and file
// names.
func checkUID(uid types.UID) error {
	if s := string(uid); s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("pod UID %q cannot be a directory name", s)
	}
	return nil
}

// Release unmounts everything below the pod's directory. It removes the directory when nothing is mounted there any
// more. It does not follow symbolic links.
func (v *Volumes) Release(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	if err := v.tearDown(ctx, uid); err != nil {
		return err
	}
	points := v.volumePaths(uid)
	v.releaseQuotas(points)
	if err := mounts.RemoveMounted(v.podDir(uid), points); err != nil {
		return fmt.Errorf("remove the pod's directory: %w", err)
	}
	return nil
}

// volumePaths returns the paths at which volumes of the pod may be mounted.
func (v *Volumes) volumePaths(uid types.UID) []string {
	points, err := fs.Glob(os.DirFS(v.podDir(uid)), "volumes/*/*")
	if err != nil {
		return nil // RemoveMounted then uses the mount table
	}
	for i, p := range points {
		points[i] = filepath.Join(v.podDir(uid), p)
	}
	return points
}

// createEmpty creates an empty file with exactly the given mode. It does nothing if the file exists.
func createEmpty(path string, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(mode), f.Close())
}

func dropOldAttempts(dir string, newest uint32) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list termination logs: %w", err)
	}
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && n+keptAttempts < uint64(newest) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove an old termination log: %w", err)
			}
		}
	}
	return nil
}
