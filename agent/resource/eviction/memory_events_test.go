package eviction

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
)

// memoryCgroup creates a memory cgroup of cgroup v1 for a test. The limit 0 means no limit.
func memoryCgroup(t *testing.T, limit int) string {
	t.Helper()
	if os.Getuid() != 0 || cgroup.NewReader(cgroup.Mountpoint).Unified() {
		t.Skip("needs root, and cgroup v1")
	}
	dir := filepath.Join(cgroup.Mountpoint, "memory", fmt.Sprint("islet-evict-", os.Getpid(), "-", t.Name()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("no memory cgroup can be made: ", err)
	}
	t.Cleanup(func() {
		for range 1000 { // the processes in it have just been killed
			if os.Remove(dir) == nil {
				return
			}
			runtime.Gosched()
		}
		t.Errorf("%s is not empty", dir)
	})
	if limit > 0 {
		if err := os.WriteFile(filepath.Join(dir, "memory.limit_in_bytes"), []byte(strconv.Itoa(limit)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// This helper runs a shell command in a cgroup until the command or the test ends.
func in(t *testing.T, dir, command string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "echo $$ >"+dir+"/cgroup.procs; "+command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		for syscall.Kill(-cmd.Process.Pid, 0) == nil { // the children must end too
			runtime.Gosched()
		}
	})
	return cmd
}

func awaitWake(t *testing.T, w *Watch) {
	t.Helper()
	select {
	case <-w.Wake():
	case <-time.After(time.Minute):
		t.Fatal("no event of the kernel")
	}
}

// TestWatchTellsOfUse checks that a watch wakes only when the memory usage of a cgroup reaches the mark.
func TestWatchTellsOfUse(t *testing.T) {
	dir := memoryCgroup(t, 0)
	w := OpenWatch("/nonexistent", filepath.Dir(dir), filepath.Base(dir), false, slog.New(slog.DiscardHandler))
	defer w.Close()
	if w.Coverage() != NoEvents {
		t.Error("coverage before a mark is set")
	}
	w.Arm(0, 32<<20)
	if w.Coverage() != UseEvents {
		t.Error("no coverage")
	}
	first := w.usageThresholds[1]
	w.Arm(0, 33<<20)
	if w.usageThresholds[1] != first {
		t.Error("a new mark was set for a small difference")
	}
	end := in(t, dir, "head -c 4m /dev/zero | tail >/dev/null")
	if err := end.Wait(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-w.Wake():
		t.Error("woken below the mark")
	default:
	}
	in(t, dir, "head -c 64m /dev/zero | tail >/dev/null; sleep 60")
	awaitWake(t, w)
	w.Arm(0, 0)
	if w.usageThresholds[1].file != nil {
		t.Error("the mark is still set")
	}
	w.dirs[1] = dir + "/gone"
	if w.Arm(0, 1); w.Coverage() != NoEvents {
		t.Error("coverage without a file")
	}
}

// TestWatchTellsOfStalls checks that a watch wakes repeatedly while processes wait for memory. In this test, their cgroup has reached its
// limit.
func TestWatchTellsOfStalls(t *testing.T) {
	dir := memoryCgroup(t, 24<<20)
	if _, err := os.Stat("/proc/pressure/memory"); err != nil {
		t.Skip("the kernel has no pressure stall information: ", err)
	}
	w := OpenWatch("/proc/pressure/memory", t.TempDir(), "none", true, slog.New(slog.DiscardHandler))
	defer w.Close()
	if w.Arm(1, 1); w.Coverage() != StallEvents {
		t.Fatal("no coverage")
	}
	in(t, dir, "while :; do dd if=/dev/zero of="+filepath.Join(t.TempDir(), "big")+" bs=1M count=96; done")
	for range 3 {
		awaitWake(t, w)
	}
}

// TestWatchEnds checks that a closed watch has no open files.
func TestWatchEnds(t *testing.T) {
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	dir := memoryCgroup(t, 0)
	before := open()
	for range 20 {
		w := OpenWatch("/proc/pressure/memory", filepath.Dir(dir), filepath.Base(dir), false, slog.New(slog.DiscardHandler))
		w.Arm(1<<40, 1<<40)
		w.Close()
	}
	if now := open(); now > before+1 { // Go's poller has one file
		t.Errorf("%d files, before %d", now, before)
	}
}

// TestUrgent checks that a file that cannot be polled is rejected.
func TestUrgent(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := epollFor(f); err == nil {
		got.Close()
		t.Error("a regular file is accepted")
	}
}

// TestWire checks the watch of a cgroup v2. Regular files replace the kernel's files. When the usage reaches the mark, the watch wakes
// once. It then resets memory.high, so that the kernel does not throttle processes.
func TestWire(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	high := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(filepath.Join(dir, "memory.high")); err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("memory.high is %q, not %q (%v)", b, want, err)
		}
	}
	for name, text := range map[string]string{
		"memory.current": "100000", "memory.max": "max", "memory.high": "5", "memory.events.local": "high 0",
	} {
		write(name, text)
	}
	w := OpenWatch("/nonexistent", dir, "", true, slog.New(slog.DiscardHandler))
	defer w.Close()
	high("max") // an earlier agent has left a value
	w.Arm(0, 50000)
	high("150000")
	w.Arm(0, 50001)
	high("150000") // the difference is too small
	w.Arm(20000, 50000)
	high("120000")
	w.Arm(50000, 20000)
	high("120000")
	write("memory.events.local", "high 1")
	awaitWake(t, w)
	high("max")
	w.Arm(0, 50000)
	high("150000")
	for name, to := range map[string]func(){
		"no mark":                     func() { w.Arm(0, 0) },
		"the limit is lower":          func() { write("memory.max", "150000"); w.Arm(0, 50000); write("memory.max", "max") },
		"the usage exceeds the limit": func() { write("memory.max", "9"); w.Arm(0, 50000); write("memory.max", "max") },
		"no cgroup":                   func() { os.Remove(filepath.Join(dir, "memory.max")); w.Arm(0, 50000); write("memory.max", "max") },
	} {
		t.Run(name, func(t *testing.T) {
			to()
			high("max")
		})
		w.Arm(0, 50000)
	}
	high("150000")
	file := filepath.Join(dir, "memory.high")
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil { // a write to the file fails for some time
		t.Fatal(err)
	}
	write("memory.events.local", "high 2")
	awaitWake(t, w)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	write("memory.high", "150000")
	w.Arm(0, 0) // the next measurement follows
	high("max")
	w.Arm(0, 50000)
	high("150000")
	w.Close()
	high("max")
	select {
	case <-w.Wake():
		t.Error("woken without an event")
	default:
	}
}
