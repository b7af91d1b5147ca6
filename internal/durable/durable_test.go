package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/internal/durable"
)

// TestWrite checks that a file is created and replaced, even if a killed process has left a temporary file. No other file remains.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(filepath.Join(dir, ".file.new"), []byte("what was left, and is longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"first", "2", ""} {
		if err := durable.Write(path, []byte(content), 0o600); err != nil {
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

// TestWriteFails checks that a failed write leaves no temporary file and keeps the old file.
func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil { // cannot be replaced by a file
		t.Fatal(err)
	}
	if err := durable.Write(path, []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 || !all[0].IsDir() {
		t.Errorf("%v %v", all, err)
	}
	if err := durable.Write(filepath.Join(dir, "missing", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestWriteOverLeft checks that an existing file with the temporary name is not opened. A symlink is not followed, and a FIFO does not
// block.
func TestWriteOverLeft(t *testing.T) {
	dir := t.TempDir()
	path, next, elsewhere := filepath.Join(dir, "file"), filepath.Join(dir, ".file.new"), filepath.Join(dir, "elsewhere")
	for name, leave := range map[string]func() error{
		"a link":      func() error { return os.Symlink(elsewhere, next) },
		"a pipe":      func() error { return syscall.Mkfifo(next, 0o600) },
		"a hard link": func() error { return errors.Join(os.WriteFile(elsewhere, nil, 0o644), os.Link(elsewhere, next)) },
	} {
		if err := errors.Join(leave(), durable.Write(path, []byte(name), 0o600)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := os.ReadFile(path)
		if other, _ := os.ReadFile(elsewhere); err != nil || string(data) != name || len(other) > 0 {
			t.Errorf("%s: %q, elsewhere %q, %v", name, data, other, err)
		}
		os.Remove(elsewhere)
	}
}
