package ctrd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
