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

// checks are the name prefixes of the directory and of the file with which containerd tests whether
// overlayfs works. containerd mounts an overlay in the directory.
var checks = []string{"multiple-lowerdir-check", "fsutils-dummy"}

// dropChecks removes these from dirs, because an agent may have been killed during the test. The
// caller must make sure that no other agent is running the test.
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
				errs = append(errs, fmt.Errorf("remove the remains of an interrupted overlayfs test: %w", err))
			}
		}
	}
	return errors.Join(errs...)
}
