package regular_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/regular"
)

// TestRead checks that a file of the maximum size is read, also through a symlink. A larger file and a file that is not regular must be
// rejected without blocking. The error must contain the name of the file.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(file, []byte("12345"), 0o600), os.Symlink(file, link), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{file, link} {
		if got, err := regular.Read(name, 5); err != nil || string(got) != "12345" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := regular.Read(file, 4); got != nil || err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a byte too many: %q, %v", got, err)
	}
	for _, name := range []string{dir, pipe, "/dev/zero"} {
		if got, err := regular.Read(name, 5); got != nil || !errors.Is(err, regular.ErrNotRegular) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := regular.Read(filepath.Join(dir, "none"), 5); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}
