package ctrd_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// These constants are the number of probes in a normal and in a long test run, and the number of concurrent probes.
const (
	probes, longProbes = 48, 10_000
	probesAtOnce       = 32
)

// TestProbes checks exec probes that leave child processes of every kind. Each probe returns its own output and exit code. In the end, no
// process, descriptor, goroutine, cgroup, mount, FIFO or file is left. With ISLET_TEST_LONG there are 10,000 probes.
func TestProbes(t *testing.T) { testProbes(t, newNode(t, 16), probes, longProbes) }

// TestTaskProbes is TestProbes with a containerd shim.
func TestTaskProbes(t *testing.T) {
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("as TestProbes, by a containerd shim: ISLET_TEST_LONG=1")
	}
	testProbes(t, newTaskNode(t), probes/4, longProbes/10)
}

// TestProbeKilledEarly checks a probe that times out while runc starts its command. At this time, runc may have mounted its own program on
// a temporary file. The temporary file is removed. The program is kept.
func TestProbeKilledEarly(t *testing.T) {
	n := newNode(t, 4)
	_, id := n.runPod(t, 1, "wait")
	path := filepath.Join(n.run, "oci", id, "runc.AbCdEf")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), unix.Mount(n.shim, path, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	kinds()[len(kinds())-1].run(t, n, id)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", path, err)
	}
	if _, err := os.Lstat(n.shim); err != nil {
		t.Errorf("the program itself: %v", err)
	}
}

func testProbes(t *testing.T, n *node, count, long int) {
	if os.Getenv("ISLET_TEST_LONG") != "" {
		count = long
	}
	_, id := n.runPod(t, 1, "reap", "wait")
	base := processes(n)
	n.probe(t, id, probesAtOnce) // creates everything that is created only once
	before, files := n.settle(t, base), n.files()
	began := time.Now()
	n.probe(t, id, count)
	t.Logf("%d probes took %v", count, time.Since(began))
	var after holdings
	defer func() {
		if t.Failed() {
			t.Logf("before %+v, after %+v", before, after)
			for path := range n.files() {
				if !files[path] {
					t.Logf("new: %s", path)
				}
			}
		}
	}()
	eventually(t, "nothing is left of the probes", func() bool {
		after = n.holds(t)
		return after.within(before)
	})
}

// A probe is a command with its expected result.
type probe struct {
	name     string
	cmd      []string
	timeout  int64
	code     int32
	out      string
	child    string // output of the child process; it is empty if the child starts after the probe has ended
	timesOut bool   // whether the probe times out
}

// kinds returns one probe of each kind. Their child processes live longer than the probes.
func kinds() []probe {
	return []probe{
		{name: "a silent child", cmd: []string{"forked", "2s", "print", "own"}, timeout: 120, out: "own\n"},
		{name: "a silent child of one that fails", cmd: []string{"forked", "2s", "print", "own", "exit", "3"}, timeout: 120, code: 3, out: "own\n"},
		{name: "a child that writes", cmd: []string{"late", "100ms", "3", "print", "own", "exit", "7"}, timeout: 120, code: 7, out: "own\n", child: "0\n1\n2\n"},
		{name: "children of a child", cmd: []string{"orphan", "forked", "2s", "sleep", "2s"}, timeout: 120},
		{name: "no child", cmd: []string{"print", "own", "exit", "1"}, code: 1, out: "own\n"},
		{name: "a child of one that takes too long", cmd: []string{"forked", "2s", "sleep", "1h"}, timeout: 1, timesOut: true},
	}
}

// probe runs the given number of probes. They are of all kinds.
func (n *node) probe(t *testing.T, id string, count int) {
	t.Helper()
	table := kinds()
	todo := make(chan probe)
	var workers sync.WaitGroup
	for range probesAtOnce {
		workers.Go(func() {
			for p := range todo {
				p.run(t, n, id)
			}
		})
	}
	for i := range count {
		todo <- table[i%len(table)]
	}
	close(todo)
	workers.Wait()
}

func (p probe) run(t *testing.T, n *node, id string) {
	r, err := n.ExecSync(context.Background(), &api.ExecSyncRequest{ContainerId: id, Cmd: append([]string{"/prog"}, p.cmd...), Timeout: p.timeout})
	switch {
	case p.timesOut:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, %v", p.name, r, err)
		}
	case err == nil && r.ExitCode == p.code && p.child != "" && string(r.Stdout) == p.out+p.child:
	case err != nil || r.ExitCode != p.code || string(r.Stdout) != p.out || len(r.Stderr) > 0:
		t.Errorf("%s: %v, %v", p.name, r, err)
	}
}

// A holdings counts the resources of a node and of this process.
type holdings struct {
	goroutines, descriptors, children int // resources of this process
	processes, shimDescriptors, shims int
	cgroups, mounts, files            int
}

// within reports whether no number in h is higher than in before. A decrease is allowed, because pools shrink.
func (h holdings) within(before holdings) bool {
	return h.goroutines <= before.goroutines && h.descriptors <= before.descriptors && h.children <= before.children &&
		h.processes <= before.processes && h.shimDescriptors <= before.shimDescriptors && h.shims <= before.shims &&
		h.cgroups <= before.cgroups && h.mounts <= before.mounts && h.files <= before.files
}

func (n *node) holds(t *testing.T) (h holdings) {
	t.Helper()
	h.goroutines, h.descriptors = runtime.NumGoroutine(), entries("/proc/self/fd")
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		h.children += len(strings.Fields(string(b)))
	}
	h.processes = processes(n)
	for _, pid := range append(n.taskShims(t, ""), n.shimProcess(t, "1"), n.shimProcess(t, "t1")) {
		if pid > 0 {
			h.shimDescriptors += entries(fmt.Sprintf("/proc/%d/fd", pid))
			h.shims++
		}
	}
	for _, dir := range cgroupDirs(n.cgroup) {
		filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				h.cgroups++
			}
			return nil
		})
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	h.mounts = strings.Count(string(mounts), "\n")
	h.files = len(n.files())
	return h
}

// files returns the files of a node.
func (n *node) files() map[string]bool {
	paths := map[string]bool{}
	for _, dir := range []string{n.run, n.dir} {
		filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			paths[path] = err == nil
			return nil
		})
	}
	return paths
}

func entries(dir string) int {
	list, _ := os.ReadDir(dir)
	return len(list)
}

// settle waits until the containers have only base processes and until all numbers stay the same for a while. Then the child processes of
// the probes have ended.
func (n *node) settle(t *testing.T, base int) (last holdings) {
	t.Helper()
	expectProcesses(t, n, base)
	last = n.holds(t)
	same := 0
	eventually(t, "the node is at rest", func() bool {
		now := n.holds(t)
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		return same >= 10
	})
	return last
}
