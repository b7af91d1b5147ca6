package disktest_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/internal/disktest"
)

// TestDisk checks that a full disk takes no byte until it is freed.
func TestDisk(t *testing.T) {
	d := disktest.New(t)
	write := func(text string) error { return os.WriteFile(filepath.Join(d.Dir, text), []byte(text), 0o600) }
	d.Exhaust(write)
	if err := write("more"); !errors.Is(err, syscall.ENOSPC) {
		t.Error("a full disk took a file:", err)
	}
	d.Free()
	if err := write("more"); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(filepath.Join(d.Copy(), "more")); err != nil || string(data) != "more" {
		t.Errorf("the copy has %q, %v", data, err)
	}
}
