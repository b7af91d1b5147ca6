package ctrd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkRootfs refuses an image in which a place that an OCI runtime mounts to and
// fills itself is no directory. Runc 1.1 makes and removes files below /dev by
// their paths on the host: with /dev a link of the image it would do so anywhere.
// Nothing has run in this root file system, so that what is seen here stays.
func checkRootfs(root string) error {
	for _, name := range []string{"dev", "proc", "sys"} {
		st, err := os.Lstat(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at the image's /%s: %w", name, err)
		}
		if !st.IsDir() {
			return fmt.Errorf("the image's /%s is no directory but %v: use an image in which it is one, or is missing", name, st.Mode())
		}
	}
	return nil
}
