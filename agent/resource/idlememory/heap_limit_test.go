package idlememory

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHeapLimit(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ machine, cgroup, want uint64 }{
		{24 << 30, 0, 6 << 30},
		{512 * mib, 0, 128 * mib},
		{100 * mib, 0, 25 * mib},
		{64 * mib, 0, 24 * mib},
		{1 << 30, 200 * mib, 50 * mib},
		{1 << 30, math.MaxInt64 &^ 4095, 256 * mib}, // cgroup v1 without a limit
		{1 << 30, 4096, 24 * mib},
	} {
		if got := heapLimit(c.machine, c.cgroup); got != int64(c.want) {
			t.Errorf("%d, %d: %d MiB", c.machine, c.cgroup, got/mib)
		}
	}
}

func TestCgroupLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  uint64
	}{
		"nothing is known":   {nil, 0},
		"v2, no limit":       {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0},
		"v2, its own":        {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "1000\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 1000},
		"v2, of one above":   {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "5000\n", "sys/fs/cgroup/a/memory.max": "2000\n"}, 2000},
		"v1":                 {map[string]string{"proc/self/cgroup": "4:memory:/a\n2:cpu:/b\n0::/c\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "3000\n", "sys/fs/cgroup/cpu/b/memory.limit_in_bytes": "7\n"}, 3000},
		"of another place":   {map[string]string{"proc/self/cgroup": "0::/../../a\n", "sys/fs/cgroup/a/memory.max": "4000\n", "sys/memory.max": "1\n"}, 4000},
		"lines that are not": {map[string]string{"proc/self/cgroup": "x\n\n0::\n", "sys/fs/cgroup/memory.max": "-1\n"}, 0},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := cgroupLimit(root); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// TestBound checks that a GOMEMLIMIT set by the administrator is kept. The Go runtime has already read it.
func TestBound(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	debug.SetMemoryLimit(1 << 40)
	t.Setenv("GOMEMLIMIT", "1TiB")
	if err := LimitHeap(); err != nil || debug.SetMemoryLimit(-1) != 1<<40 {
		t.Errorf("the limit is %d (%v)", debug.SetMemoryLimit(-1), err)
	}
	t.Setenv("GOMEMLIMIT", "")
	if err := LimitHeap(); err != nil || debug.SetMemoryLimit(-1) < minHeap || debug.SetMemoryLimit(-1) >= 1<<40 {
		t.Errorf("the limit is %d (%v)", debug.SetMemoryLimit(-1), err)
	}
}

// TestSpare checks that the kernel marks each mapping of the program for random access ("rr" in VmFlags). The marks can be removed again.
func TestSpare(t *testing.T) {
	flagged := func() (n int) {
		smaps, err := os.ReadFile("/proc/self/smaps")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(smaps)) {
			if strings.HasPrefix(line, "VmFlags:") && slices.Contains(strings.Fields(line), "rr") {
				n++
			}
		}
		return n
	}
	all, err := programMappings()
	if err != nil {
		t.Fatal(err)
	}
	if err := adviseRandom(); err != nil {
		t.Fatal(err)
	}
	if n := flagged(); n != len(all) || n == 0 {
		t.Errorf("%d mappings of %d are marked for random access", n, len(all))
	}
	if err := advisePages(unix.MADV_NORMAL); err != nil || flagged() != 0 {
		t.Errorf("%d mappings are still marked (%v)", flagged(), err)
	}
}
