package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestWrite: a file is made and replaced, also over what a killed process left, and nothing else
// is there.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(filepath.Join(dir, ".file.new"), []byte("what was left, and is longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"first", "2", ""} {
		if err := Write(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		info, err2 := os.Stat(path)
		if err := errors.Join(err, err2); err != nil || string(data) != content || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v", data, info.Mode(), err)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v %v", all, err)
	}
}

// TestWriteFails: of a write that fails nothing is left, and the old file stays.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil { // cannot be replaced by a file
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 || !all[0].IsDir() {
		t.Errorf("%v %v", all, err)
	}
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, ".other.new")); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "other"), []byte("x"), 0o600); err == nil {
		t.Error("a link was followed")
	}
	if _, err := os.Stat(filepath.Join(dir, "elsewhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := Write(filepath.Join(dir, "missing", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
