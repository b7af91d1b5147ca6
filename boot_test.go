package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOneBoot checks that only package bootid reads the kernel's boot ID. Inside a container, the boot ID is that of the host and does not
// change when the container restarts.
func TestOneBoot(t *testing.T) {
	looked := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bootid", "docs", "test", "testdata", "bin", "dist"}, d.Name())) {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := d.Info(); err != nil || !d.Type().IsRegular() || info.Size() > 1<<20 || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		looked++
		if bytes.Contains(text, []byte("random/boot_id")) || bytes.Contains(text, []byte(`"boot_id")`)) {
			t.Errorf("%s reads the kernel's boot ID itself: use bootid", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 500 {
		t.Fatalf("only %d files were searched", looked)
	}
}
