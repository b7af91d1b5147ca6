package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestRead(t *testing.T) {
	want := Figures{CPU: 1500 * time.Millisecond, Memory: 1000, WorkingSet: 700, RSS: 500, Limit: 2000, PageFaults: 7, MajorFault: 2, PIDs: 3}
	for name, r := range map[string]Reader{
		"v1": {root: tree(t, map[string]string{
			"memory/a/memory.stat":           "inactive_file 1\ntotal_inactive_file 300\ntotal_rss 500\ntotal_pgfault 7\ntotal_pgmajfault 2\n",
			"memory/a/memory.usage_in_bytes": "1000\n", "memory/a/memory.limit_in_bytes": "2000\n",
			"cpuacct/a/cpuacct.usage": "1500000000\n", "pids/a/pids.current": "3\n",
		})},
		"v2": {v2: true, root: tree(t, map[string]string{
			"a/memory.stat": "anon 500\ninactive_file 300\npgfault 7\npgmajfault 2\n", "a/memory.current": "1000\n", "a/memory.max": "2000\n",
			"a/cpu.stat": "usage_usec 1500000\nuser_usec 1\n", "a/pids.current": "3\n",
		})},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.Read("/a")
			got.At = time.Time{}
			if err != nil || got != want {
				t.Errorf("got %+v, %v; want %+v", got, err, want)
			}
			if used, ok := r.CPUTime("/a"); !ok || used != want.CPU {
				t.Errorf("used %v, %v", used, ok)
			}
			if used, ok := r.CPUTime("/gone"); ok || used != 0 {
				t.Errorf("a removed cgroup has used %v", used)
			}
			if got.Available() != 1300 {
				t.Errorf("available %d", got.Available())
			}
			if _, err := r.Read("/gone"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error for a removed cgroup: %v", err)
			}
		})
	}
}

// TestHost checks that the root cgroup of the host can be read with both cgroup versions.
func TestHost(t *testing.T) {
	f, err := NewReader(Mountpoint).Read("/")
	if err != nil {
		t.Skip("no cgroups are mounted here, as in a container without them:", err)
	}
	if f.At.IsZero() {
		t.Error("no time")
	}
}
