package status

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/metrics/host"
)

// TestFileSystems checks the sizes of file systems. The total size must be that of the whole file system, because image garbage collection,
// evictions and /stats/summary compute fractions of this size.
func TestFileSystems(t *testing.T) {
	dir := t.TempDir()
	disks := fileSystems([]string{dir, dir, dir + "/missing"})
	if len(disks) != 1 || disks[0].Path != dir {
		t.Fatalf("%+v", disks)
	}
	d, err := host.New(host.Config{}).Disk(t.Context(), dir)
	if err != nil || disks[0].Total != d.Total {
		t.Errorf("the file system has %d bytes, not %d: %v", disks[0].Total, d.Total, err)
	}
	if diff := max(disks[0].Used, d.Used) - min(disks[0].Used, d.Used); diff > 1<<30 { // other programs write too
		t.Errorf("%d bytes are used, not %d", disks[0].Used, d.Used)
	}

	reserved := unix.Statfs_t{Bsize: 4096, Blocks: 1000, Bfree: 150, Bavail: 100} // 50 blocks are reserved for root
	if got, want := diskOf("/x", &reserved), (api.Disk{Path: "/x", Total: 1000 * 4096, Used: 850 * 4096, Free: 100 * 4096}); got != want {
		t.Errorf("%+v, not %+v", got, want)
	}
}
