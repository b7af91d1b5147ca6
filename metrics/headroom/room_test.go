package headroom_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/headroom"
	"github.com/islet-edge/islet/metrics/host"
)

// TestHugePages checks that memory that is reserved for huge pages is not available to other programs. The kernel does not include this
// memory in MemAvailable, so it must not be subtracted a second time.
func TestHugePages(t *testing.T) {
	const reserved = 256 << 10 // KiB
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "MemTotal: 1048576 kB\nMemFree: 500000 kB\nMemAvailable: 600000 kB\nBuffers: 0 kB\nCached: 150000 kB\n" +
		"HugePages_Total: 128\nHugePages_Free: 128\nHugePages_Rsvd: 0\nHugePages_Surp: 0\nHugepagesize: 2048 kB\nHugetlb: 262144 kB\n"
	if err := os.WriteFile(filepath.Join(root, "proc/meminfo"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	r := headroom.New(headroom.Config{Host: host.New(host.Config{Root: root}), Cgroups: cgroup.Reader{}, Pods: "/no/such/cgroup"})
	machine, _, err := r.Memory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if machine.Total != 1<<30 {
		t.Errorf("the capacity is %d", machine.Total)
	}
	switch machine.Free {
	case 600_000 << 10:
	case (600_000 + reserved) << 10:
		t.Error("reserved huge pages are reported as available")
	case (600_000 - reserved) << 10:
		t.Error("reserved huge pages are subtracted twice")
	default:
		t.Errorf("available: %d", machine.Free)
	}
}
