package process

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestOpenIsBounded checks the limits of one call of Open. The call counts all descriptors of a process. It looks for sockets only among
// the first maxDescriptors descriptors of all processes, and reads at most maxProcesses processes.
func TestOpenIsBounded(t *testing.T) {
	root := t.TempDir()
	files := func(pid, n int) {
		t.Helper()
		dir := filepath.Join(root, strconv.Itoa(pid), "fd")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err := os.Symlink("socket:[1]", filepath.Join(dir, strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	const each = namesAtOnce + 1
	var few, many []int
	for pid := 1; pid <= 5; pid++ {
		files(pid, each)
		few = append(few, pid)
	}
	for pid := 10; pid < 10+maxProcesses+5; pid++ {
		files(pid, 1)
		many = append(many, pid)
	}
	r := Reader{Root: root}
	for _, x := range []struct {
		pids []int
		want Files
	}{
		{few[:1], Files{each, each, true}},
		{few, Files{5 * each, maxDescriptors, true}},
		{many, Files{maxProcesses, maxProcesses, true}},
		{[]int{999}, Files{}},
	} {
		if got := r.Open(x.pids); got != x.want {
			t.Errorf("%d processes: %+v, want %+v", len(x.pids), got, x.want)
		}
	}
}
