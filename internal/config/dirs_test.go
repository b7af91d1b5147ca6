package config

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDirs checks that the directories for other programs exist, and that other users cannot access them.
func TestDirs(t *testing.T) {
	d := Dirs{Root: filepath.Join(t.TempDir(), "kubelet")}
	for range 2 {
		if err := d.Make(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "pods", "plugins", "plugins_registry", "pod-resources", "device-plugins"} {
		st, err := os.Stat(filepath.Join(d.Root, name))
		if err != nil || !st.IsDir() || st.Mode().Perm()&0o007 != 0 {
			t.Errorf("%q: %v, %v", name, st, err)
		}
	}
}
