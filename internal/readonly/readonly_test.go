package readonly_test

import (
	"os"
	"testing"

	"github.com/islet-edge/islet/internal/readonly"
)

func TestDisk(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, os.ModeSticky|0o751); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if readonly.CheckDisk(dir) || readonly.CheckDisk(dir+"/missing") {
		t.Error("a disk that takes writes is read-only")
	}
	if after, err := os.Stat(dir); err != nil || after.Mode() != before.Mode() || after.ModTime() != before.ModTime() {
		t.Errorf("the directory was %v and is %v, %v", before, after, err)
	}
}
