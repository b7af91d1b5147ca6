package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/config"
)

// TestLockMarks checks that the lock file marks a directory as islet's run directory. RemoveRun deletes only islet's files.
func TestLockMarks(t *testing.T) {
	d := config.Dirs{State: t.TempDir(), Run: filepath.Join(t.TempDir(), "run")}
	for range 2 {
		f, err := Lock(d.Run)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if used, err := DirsUsed(d); err != nil || !used {
		t.Errorf("used %v, %v", used, err)
	}
	if err := os.WriteFile(d.Run+"/mine", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/h/boxed", "/t/oci/boxed", "/" + Hooks} { // files of a runtime class, of containerd's shims and of hooks
		if err := os.MkdirAll(d.Run+dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.Run+"/boot", []byte("its name"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := RemoveRun(d.Run); err == nil || !strings.Contains(err.Error(), "mine") {
		t.Errorf("removed: %v", err)
	}
	if left, err := listNames(d.Run); err != nil || len(left) != 1 {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := os.Remove(d.Run + "/mine"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := RemoveRun(d.Run); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(d.Run); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestLockAllOrNone checks that Lock locks either all given directories or none.
func TestLockAllOrNone(t *testing.T) {
	free, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Lock(free, file); err == nil || len(l) > 0 {
		t.Fatalf("locked a file in place of a directory: %v, %v", l, err)
	}
	l, err := Lock(free, t.TempDir())
	if err != nil {
		t.Fatalf("the first directory is still locked: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
