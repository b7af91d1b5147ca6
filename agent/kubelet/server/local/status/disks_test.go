package status

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestFileSystems checks that the total size of a file system consists of the used and the free bytes, like df's percentage. Blocks that
// are reserved for root are neither.
func TestFileSystems(t *testing.T) {
	dir := t.TempDir()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	disks := fileSystems([]string{dir, dir, dir + "/missing"})
	if len(disks) != 1 || disks[0].Path != dir {
		t.Fatalf("%+v", disks)
	}
	used, want := disks[0].Total-disks[0].Free, (fs.Blocks-fs.Bfree)*uint64(fs.Bsize)
	if diff := max(used, want) - min(used, want); diff > 1<<30 { // other programs write too
		t.Errorf("%d bytes are used, not %d", used, want)
	}
}
