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

// keptAttempts is how many termination logs stay beside the newest.
const keptAttempts = 4

// escape makes a plugin's name one path element, as the kubelet does.
func escape(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }

// checkUID keeps a UID that came from a label or a file from naming anything but
// a directory among the pods'.
func checkUID(uid types.UID) error {
	if s := string(uid); s == "" || s == "." || s == ".." || strings.ContainsAny(s, "/\x00") {
		return fmt.Errorf("pod UID %q cannot be a directory name", s)
	}
	return nil
}

// Release unmounts all that is mounted below the pod's directory and removes
// it, if nothing is mounted there any more. Symbolic links are removed and never
// followed.
func (v *Volumes) Release(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	if err := v.tearDown(ctx, uid); err != nil {
		return err
	}
	points := v.points(uid)
	v.forget(points)
	if err := mounts.RemoveMounted(v.podDir(uid), points); err != nil {
		return fmt.Errorf("remove the pod's directory: %w", err)
	}
	return nil
}

// points are where the volumes of a pod are mounted, if they are.
func (v *Volumes) points(uid types.UID) []string {
	points, err := fs.Glob(os.DirFS(v.podDir(uid)), "volumes/*/*")
	if err != nil {
		return nil // they are found among all mounts
	}
	for i, p := range points {
		points[i] = filepath.Join(v.podDir(uid), p)
	}
	return points
}

// Sweep releases the directories of pods that keep does not want. It is called
// once, after every source has spoken.
func (v *Volumes) Sweep(ctx context.Context, keep func(types.UID) bool) error {
	errs := []error{v.sweepApart(ctx, keep)}
	entries, err := os.ReadDir(v.pods)
	if err != nil {
		return fmt.Errorf("list the directories of the pods: %w", err)
	}
	for _, e := range entries {
		if uid := types.UID(e.Name()); !keep(uid) && !v.hasApart(uid) {
			errs = append(errs, v.Release(ctx, uid))
		}
	}
	return errors.Join(errs...)
}

// touch makes an empty file with exactly the mode, if it is not there.
func touch(path string, mode fs.FileMode) error {
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
