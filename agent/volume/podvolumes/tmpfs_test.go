package podvolumes

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMemoryNeverSwaps(t *testing.T) {
	const head, swap = "Filename\tType\tSize\tUsed\tPriority\n", "/dev/zram0 partition 1 0 100\n"
	for name, tt := range map[string]struct {
		refuse error // error for the option noswap
		swaps  string
		asked  []string
		warns  int
		fails  bool
	}{
		"a new kernel":           {nil, head + swap, []string{"mode=0777,noswap", "mode=0777,noswap"}, 0, false},
		"an old kernel":          {unix.EINVAL, head + swap, []string{"mode=0777,noswap", "mode=0777", "mode=0777,noswap", "mode=0777"}, 1, false},
		"an old kernel, no swap": {unix.EINVAL, head, []string{"mode=0777,noswap", "mode=0777", "mode=0777,noswap", "mode=0777"}, 0, false},
		"a user namespace":       {unix.EPERM, head + swap, []string{"mode=0777,noswap", "mode=0777", "mode=0777,noswap", "mode=0777"}, 1, false},
		"out of memory":          {unix.ENOMEM, head + swap, []string{"mode=0777,noswap", "mode=0777,noswap"}, 0, true},
	} {
		var asked []string
		var log bytes.Buffer
		m := newMemory(slog.New(slog.NewTextHandler(&log, nil)))
		m.readSwaps = func() ([]byte, error) { return []byte(tt.swaps), nil }
		m.mount = func(_, options string) error {
			asked = append(asked, options)
			if strings.HasSuffix(options, "noswap") {
				return tt.refuse
			}
			return nil
		}
		for range 2 {
			if err := m.mountAt("/x", "mode=0777"); (err != nil) != tt.fails {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !slices.Equal(asked, tt.asked) || strings.Count(log.String(), "level=WARN") != tt.warns {
			t.Errorf("%s: options %q, log %s", name, asked, log.String())
		}
	}
}

// TestKernelTakesNoswap checks that the kernel accepts the option noswap.
func TestKernelTakesNoswap(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "noswap"); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		t.Skip("this kernel is older than 6.4, or this is a user namespace:", err)
	} else if err != nil {
		t.Fatal(err)
	}
	unix.Unmount(dir, unix.MNT_DETACH)
	if err := newMemory(nil).mountAt(dir, "mode=0777"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, " "+dir+" ") && !strings.Contains(line, "noswap") {
			t.Errorf("mounted with %s", line)
		}
	}
}
