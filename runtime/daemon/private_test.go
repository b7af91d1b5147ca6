package daemon

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	for _, before := range []os.FileMode{0, 0o711, 0o755} {
		if before != 0 {
			if err := os.Chmod(dir, before); err != nil {
				t.Fatal(err)
			}
		}
		if err := CreatePrivateDir(dir); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("after %o: %v %v", before, info.Mode(), err)
		}
	}
}
