package process

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// TestOpenIsBounded checks the limits of one call of Open. The call counts all descriptors of a process. It looks for sockets only among
// the first maxDescriptors descriptors of all processes, and reads at most maxProcesses processes and about maxNames names.
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
	var shared []int // processes with one table of files
	for pid := 1000; pid < 1000+maxNames/each+10; pid++ {
		if err := os.Symlink("1", filepath.Join(root, strconv.Itoa(pid))); err != nil {
			t.Fatal(err)
		}
		shared = append(shared, pid)
	}
	r := Reader{Root: root}
	if got := r.Open(shared); got.Descriptors < maxNames || got.Descriptors > maxNames+2*namesAtOnce {
		t.Errorf("%d names were read", got.Descriptors)
	}
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

// TestOpenReported checks the number of files that the kernel reports for a real process.
func TestOpenReported(t *testing.T) {
	list := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	list() // opens the poller's descriptors
	before := list()
	for range 100 {
		f, err := os.Open("/dev/null")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	got := Reader{}.Open([]int{os.Getpid()})
	if n := int(got.Descriptors); n < before+99 || n > before+101 { // the directory itself is open, too
		t.Errorf("%d open files, %d before 100 were opened", n, before)
	}
}
