package host_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/metrics/host"
)

// writeRoot writes files below a root directory.
func writeRoot(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const stat = "cpu  100 0 50 1000 20 0 0 0 0 0\ncpu0 50 0 25 500 10 0 0 0 0 0\ncpu1 50 0 25 500 10 0 0 0 0 0\nbtime 1700000000\n"

func board(t *testing.T) string {
	root := t.TempDir()
	writeRoot(t, root, map[string]string{
		"proc/stat":                      stat,
		"proc/uptime":                    "10.0 20.0\n",
		"proc/meminfo":                   "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 600 kB\nBuffers: 1 kB\nCached: 300 kB\nSwapTotal: 50 kB\nSwapFree: 40 kB\n",
		"proc/loadavg":                   "0.50 0.25 0.10 1/100 1234\n",
		"proc/cpuinfo":                   "processor : 0\nprocessor : 1\n",
		"proc/sys/kernel/random/boot_id": "b00t\n",
		"etc/machine-id":                 "m4chine\n",
		"etc/os-release":                 "NAME=x\nPRETTY_NAME=\"Board OS 1\"\n",
		"sys/devices/system/cpu/online":  "0-1\n",
		"proc/sys/kernel/osrelease":      "6.1.0\n",
		"sys/class/dmi/id/product_uuid":  "ABC-1\n",
	})
	return root
}

func TestIdentity(t *testing.T) {
	root := board(t)
	h := host.New(host.Config{Root: root})
	id, err := h.Identity(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := host.Identity{
		Kernel: id.Kernel, OSImage: "Board OS 1", Architecture: runtime.GOARCH, MachineID: "m4chine", SystemUUID: "abc-1",
		BootID: "b00t", BootTime: time.Unix(1700000000, 0), CPUs: id.CPUs, Memory: 1000 << 10, Swap: 50 << 10,
	}
	if id != want || id.Kernel == "" || id.CPUs == 0 {
		t.Errorf("got  %+v\nwant %+v", id, want)
	}
	if err := os.RemoveAll(filepath.Join(root, "proc")); err != nil {
		t.Fatal(err)
	}
	if again, err := h.Identity(context.Background()); err != nil || again != id {
		t.Errorf("it is read once: %v %+v", err, again)
	}
	if _, err := host.New(host.Config{Root: root}).Identity(context.Background()); err == nil {
		t.Error("a host without /proc must be an error")
	}
}

func TestIdentityOfABareBoard(t *testing.T) {
	root := board(t)
	for _, gone := range []string{"etc/os-release", "sys/class/dmi/id/product_uuid"} {
		if err := os.Remove(filepath.Join(root, gone)); err != nil {
			t.Fatal(err)
		}
	}
	id, err := host.New(host.Config{Root: root}).Identity(context.Background())
	if err != nil || id.OSImage != "Linux" || id.SystemUUID != "m4chine" {
		t.Errorf("got %v %+v", err, id)
	}
}

func TestHugePages(t *testing.T) {
	root := board(t)
	if pages, err := host.New(host.Config{Root: root}).HugePages(); err != nil || len(pages) != 0 {
		t.Errorf("none: %v %v", pages, err)
	}
	writeRoot(t, root, map[string]string{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n"})
	if pages, err := host.New(host.Config{Root: root}).HugePages(); err != nil || pages[2<<20] != 6<<20 {
		t.Errorf("got %v %v", pages, err)
	}
	writeRoot(t, root, map[string]string{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "many"})
	if _, err := host.New(host.Config{Root: root}).HugePages(); err == nil {
		t.Error("want an error")
	}
}

func TestUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := board(t)
		h := host.New(host.Config{Root: root})
		first, err := h.Usage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if m := first.Memory; m.Total != 1000<<10 || m.Available != 600<<10 || m.Used != 400<<10 || m.SwapFree != 40<<10 {
			t.Errorf("memory: %+v", m)
		}
		if c := first.CPU; c.Busy != 1500*time.Millisecond || c.Cores != 0.15 {
			t.Errorf("CPU since boot: %+v", c)
		}
		writeRoot(t, root, map[string]string{"proc/stat": "cpu  300 0 50 1000 20 0 0 0 0 0\ncpu0 1 0 0 0 0 0 0 0 0 0\n"})
		if again, _ := h.Usage(context.Background()); again != first {
			t.Error("the recent figure was not returned again")
		}
		time.Sleep(4 * time.Second)
		second, err := h.Usage(context.Background())
		if err != nil || second.CPU.Cores != 0.5 {
			t.Errorf("2 s of work in 4 s: %v %+v", err, second.CPU)
		}
		writeRoot(t, root, map[string]string{"proc/stat": stat})
		time.Sleep(time.Second)
		if third, _ := h.Usage(context.Background()); third.CPU.Cores != 0 {
			t.Errorf("a counter that runs backwards is no use: %+v", third.CPU)
		}
	})
}

// TestNoMeminfo checks that an unreadable meminfo is an error. Zeros would cause the eviction of all pods.
func TestNoMeminfo(t *testing.T) {
	root := board(t)
	if err := os.Remove(filepath.Join(root, "proc/meminfo")); err != nil {
		t.Fatal(err)
	}
	h := host.New(host.Config{Root: root})
	if m, err := h.Memory(t.Context()); err == nil || !strings.Contains(err.Error(), "meminfo") {
		t.Errorf("%+v, %v", m, err)
	}
	if id, err := h.Identity(t.Context()); err == nil {
		t.Errorf("%+v", id)
	}
}

func TestThisMachine(t *testing.T) {
	h, ctx := host.New(host.Config{}), context.Background()
	id, err := h.Identity(ctx)
	if err != nil || id.Kernel == "" || id.CPUs < 1 || id.Memory < 1<<20 || id.BootTime.Year() < 1970 {
		t.Errorf("identity: %v %+v", err, id)
	}
	u, err := h.Usage(ctx)
	if err != nil || u.CPU.Busy == 0 || u.Memory.Total != id.Memory {
		t.Errorf("usage: %v %+v", err, u)
	}
	d, err := h.Disk(ctx, t.TempDir())
	if err != nil || d.Total == 0 || d.Type == "" || d.Used > d.Total {
		t.Errorf("disk: %v %+v", err, d)
	}
	if _, err := h.Disk(ctx, "/does/not/exist"); err == nil {
		t.Error("want an error")
	}
}
