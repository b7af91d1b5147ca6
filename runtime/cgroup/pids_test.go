package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPIDLimits(t *testing.T) {
	for name, c := range map[string]struct {
		pidMax, threadsMax string
		wanted             int64
		all, pod           int64
	}{
		"usual":                        {"32768\n", "192731\n", -1, 29492, 14746},
		"64 bits":                      {"4194304\n", "30000\n", 0, 27000, 13500},
		"large":                        {"4194304\n", "4000000\n", -1, 3983616, 1991808},
		"small":                        {"32768\n", "3500\n", -1, 2476, 1238},
		"tiny":                         {"1000\n", "900\n", -1, 450, 225},
		"configured":                   {"32768\n", "192731\n", 77, 29492, 77},
		"no pid_max":                   {"", "5000\n", -1, 0, 0},
		"configured, no kernel limits": {"", "", 77, 0, 77},
		"not a number":                 {"many", "5000", -1, 0, 0},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"pid_max": c.pidMax, "threads-max": c.threadsMax} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := findPIDLimits(dir, c.wanted); got != (pidLimits{c.all, c.pod}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
