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

// checkPrefixes contains the name prefixes of the temporary directory and the temporary file of
// containerd's test of overlayfs. The test mounts an overlay in the directory.
var checkPrefixes = []string{"multiple-lowerdir-check", "fsutils-dummy"}

// removeChecks removes the files of interrupted overlayfs tests from dirs. The caller must make
// sure that no other process is running the test.
func removeChecks(dirs ...string) error {
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		errs = append(errs, err)
		for _, e := range entries {
			if !slices.ContainsFunc(checkPrefixes, func(c string) bool { return strings.HasPrefix(e.Name(), c) }) {
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
