package bench

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/figures"
	"github.com/islet-edge/islet/test/machine"
)

// TestPressure measures how much page cache the agent leaves to other programs of a machine with little memory. The agent and a program
// that reads a file run in a cgroup with 128 or 256 MiB. The file and the anonymous memory of both need all of it. The figure is the
// part of the reads that the page cache answers.
func TestPressure(t *testing.T) {
	figures.SkipUnlessBench(t)
	f := &figures.Table{}
	for _, mib := range []int{128, 256} {
		t.Run(fmt.Sprint(mib, "MiB"), func(t *testing.T) { measurePressure(t, f, mib) })
	}
	fmt.Print("\n", f)
}

// pressureTime is the time for which the file is read.
const pressureTime = 40 * time.Second

func measurePressure(t *testing.T, f *figures.Table, mib int) {
	group := newMemoryGroup(t, mib)
	m := machine.New(t, "edge")
	m.OwnProgram()
	dropCache(t, m.Binary()) // its pages are charged to the group that reads them first
	m.InstallImage()
	for i := range 10 {
		m.Write(fmt.Sprintf("manifests/p%03d.yaml", i), pod(i))
	}
	m.Boot()
	self := enter(t, group)
	agent := m.LaunchAgent()
	leave(t, self)
	m.WaitPods("all pods to be ready", func(pods map[string]machine.Pod) bool {
		for _, p := range pods {
			if !p.Ready() {
				return false
			}
		}
		return len(pods) == 10
	})
	pause(20 * time.Second) // the agent has returned its memory

	active, inactive := filePages(t, group)

	file := filepath.Join(m.Disk, "data")
	size := writeData(t, file, mib-30)
	dropCache(t, file)
	anonymous, mapped := ownMemory(t, agent.Pid)
	faults, disk := majorFaults(t, agent.Pid), diskReads(t, agent.Pid)
	var reads, missed int64
	var slowest time.Duration
	func() {
		self := enter(t, group)
		defer leave(t, self)
		reads, missed, slowest = readData(t, file, size, func() { m.Pods() })
	}()
	name := func(s string) string { return fmt.Sprintf("%s, %d MiB", s, mib) }
	f.Add(name("reads that the page cache answered"), fmt.Sprintf("%.1f %%", 100-100*float64(missed)/float64(reads)), "",
		fmt.Sprintf("%d MiB read", reads>>20))
	f.Add(name("agent's pages read from the disk"), fmt.Sprintf("%.1f MiB", float64(diskReads(t, agent.Pid)-disk)/(1<<20)), "",
		fmt.Sprintf("%d major faults", majorFaults(t, agent.Pid)-faults))
	f.Add(name("slowest answer of the agent"), slowest.Round(time.Millisecond).String(), "", "")
	f.Add(name("agent: anonymous memory"), anonymous, "", "pages of its program: "+mapped)
	f.Add(name("file pages that a kubelet counts as used"), fmt.Sprintf("%.1f MiB", float64(active)/(1<<20)), "",
		fmt.Sprintf("active; inactive: %.1f MiB", float64(inactive)/(1<<20)))
}

// filePages returns the bytes of the page cache of a cgroup by the kernel's two lists. The working set contains the active pages.
func filePages(t *testing.T, group string) (active, inactive int64) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(group, "memory.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch n, _ := strconv.ParseInt(value, 10, 64); name {
		case "active_file":
			active = n
		case "inactive_file":
			inactive = n
		}
	}
	return active, inactive
}

// newMemoryGroup returns a memory cgroup with a limit. It is removed when the test ends.
func newMemoryGroup(t *testing.T, mib int) string {
	t.Helper()
	dir, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(dir); err != nil {
		dir, limit = "/sys/fs/cgroup", "memory.max"
	}
	group, err := os.MkdirTemp(dir, "islet-pressure-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(group, limit), []byte(fmt.Sprint(mib<<20)), 0o644); err != nil {
		t.Fatal(err)
	}
	return group
}

// enter moves this process into a cgroup and returns the file that moves it back. Programs that it starts meanwhile stay in the cgroup.
func enter(t *testing.T, group string) (back string) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(own)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if part[1] == "memory" || part[1] == "" && !strings.Contains(group, "/memory/") {
			back = filepath.Join(filepath.Dir(group), part[2], "cgroup.procs")
		}
	}
	leave(t, filepath.Join(group, "cgroup.procs"))
	return back
}

func leave(t *testing.T, procs string) {
	t.Helper()
	if err := os.WriteFile(procs, []byte("0"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// dropCache writes a file to the disk and removes its pages from the page cache.
func dropCache(t *testing.T, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}

func writeData(t *testing.T, path string, mib int) int64 {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n, err := io.CopyN(file, rand.NewChaCha8([32]byte{}), int64(mib)<<20)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// readData reads blocks of a file at random places and calls ask each second. It returns the bytes read, those of them that came from the
// disk, and the longest time that ask took.
func readData(t *testing.T, path string, size int64, ask func()) (reads, missed int64, slowest time.Duration) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_RANDOM); err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 16<<10)
	places := rand.New(rand.NewPCG(1, 2))
	before := diskReads(t, os.Getpid())
	// The first passes fill the page cache.
	for began, asked, warm := time.Now(), time.Now(), false; time.Since(began) < pressureTime; {
		if !warm && time.Since(began) > pressureTime/4 {
			warm, reads, before = true, 0, diskReads(t, os.Getpid())
		}
		if _, err := file.ReadAt(block, places.Int64N(size/int64(len(block)))*int64(len(block))); err != nil {
			t.Fatal(err)
		}
		reads += int64(len(block))
		if time.Since(asked) > time.Second {
			asked = time.Now()
			ask()
			slowest = max(slowest, time.Since(asked))
		}
	}
	return reads, diskReads(t, os.Getpid()) - before, slowest
}

// diskReads returns the bytes that a process has read from disks.
func diskReads(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := bytes.Cut(b, []byte("\nread_bytes: "))
	text, _, _ := strings.Cut(string(after), "\n")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func majorFaults(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[9], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// ownMemory returns the anonymous memory of a process, and its resident file pages.
func ownMemory(t *testing.T, pid int) (anonymous, file string) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		switch name, value, _ := strings.Cut(line, ":"); name {
		case "RssAnon":
			anonymous = strings.TrimSpace(value)
		case "RssFile":
			file = strings.TrimSpace(value)
		}
	}
	return anonymous, file
}
