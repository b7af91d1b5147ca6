package process

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLimitFiles checks that the limit of open files applies to the agent only. A child process has the original limit.
func TestLimitFiles(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	defer unix.Prlimit(0, unix.RLIMIT_NOFILE, &before, nil)
	const lower = 321
	if err := limitFiles(lower); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); strings.HasPrefix(line, "Max open files") && f[3] != "321" {
			t.Errorf("limit %s", f[3])
		}
	}
	if before.Max < 1<<62 {
		limitFiles(before.Max + 1) // the hard limit is not lowered, even if this call fails
	}
	var now unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &now); err != nil || now.Max < before.Max {
		t.Errorf("hard limit %d, was %d (%v)", now.Max, before.Max, err)
	}
}
