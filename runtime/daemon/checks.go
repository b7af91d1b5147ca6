package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/islet-edge/islet/runtime/mounts"
)

// checks begin the names of what containerd makes to see whether overlayfs works: a directory with
// an overlay mounted in it, and a file in an empty directory.
var checks = []string{"multiple-lowerdir-check", "fsutils-dummy"}

// dropChecks removes those that an agent left in some directories because it was killed meanwhile.
// No other agent may be at it.
func dropChecks(dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		errs = append(errs, err)
		for _, e := range entries {
			if !slices.ContainsFunc(checks, func(c string) bool { return strings.HasPrefix(e.Name(), c) }) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			if err := mounts.RemoveMounted(path, []string{filepath.Join(path, "merged")}); err != nil {
				errs = append(errs, fmt.Errorf("remove a check of overlayfs that was interrupted: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
