package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMakeRoom checks which memory limits fit into a cgroup of v2, and that caches are reclaimed for a limit that fits. Without
// memory.reclaim, memory.high makes the kernel reclaim, and gets its value back.
func TestMakeRoom(t *testing.T) {
	const stat = "anon 100\nactive_file 30\ninactive_file 20\nslab_reclaimable 5\nfile_dirty 4\nfile_writeback 1\nfile 999\n"
	for _, tt := range []struct {
		limit     int64
		reclaimed int64  // by the kernel
		old       bool   // the kernel has no memory.reclaim
		writes    string // separated by spaces
		fits      bool
	}{
		{limit: 200, fits: true},
		{limit: 149}, // 50 of 200 are caches
		{limit: 150, writes: "reclaim=50", reclaimed: 50, fits: true},
		{limit: 180, writes: "reclaim=20", reclaimed: 50, fits: true},
		{limit: 160, writes: "reclaim=40", reclaimed: 39},
		{limit: 150, writes: "reclaim=50 high=150 high=190", old: true, reclaimed: 50, fits: true},
		{limit: 150, writes: "reclaim=50 high=150 high=190", old: true, reclaimed: 49}, // the others are protected, or pinned
		{limit: 149, old: true},
	} {
		dir := t.TempDir()
		put := func(file, text string) {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text+"\n"), 0o644); err != nil {
				t.Error(err)
			}
		}
		put("memory.current", "200")
		put("memory.stat", stat)
		put("memory.high", "190")
		var writes []string
		err := makeRoom(dir, tt.limit, func(path, text string) error {
			writes = append(writes, strings.TrimPrefix(filepath.Base(path), "memory.")+"="+text)
			if tt.old && filepath.Base(path) == "memory.reclaim" {
				return unix.ENOENT
			}
			put("memory.current", fmt.Sprint(200-tt.reclaimed))
			return unix.EAGAIN
		})
		if got := strings.Join(writes, " "); got != tt.writes {
			t.Errorf("limit %d: writes %q, not %q", tt.limit, got, tt.writes)
		}
		if fits := err == nil; fits != tt.fits || !fits && !errors.Is(err, errInUse) {
			t.Errorf("limit %d: %v", tt.limit, err)
		}
	}
}
