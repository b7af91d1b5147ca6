package disk

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func write(t *testing.T, path string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTrees checks that a file with two names is counted once, and that no symlink is followed. A directory must be walked again only
// after some time.
func TestTrees(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a/one"), 10_000)
	if err := os.Link(filepath.Join(dir, "a/one"), filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "all")); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		trees := Trees{Age: time.Minute}
		see := func(inodes uint64) Usage {
			t.Helper()
			u := trees.Usage(t.Context(), dir)
			if u.Inodes != inodes || u.Bytes < 10_000 || u.Bytes > 100_000 || u.Incomplete {
				t.Errorf("got %+v, want %d inodes", u, inodes)
			}
			return u
		}
		see(4)
		write(t, filepath.Join(dir, "three"), 1)
		see(4)
		time.Sleep(time.Minute)
		see(5)
		if u := trees.Usage(t.Context(), filepath.Join(dir, "gone")); u.Inodes != 0 || u.Bytes != 0 {
			t.Errorf("of nothing: %+v", u)
		}
		time.Sleep(time.Hour)
		see(5)
		if len(trees.trees) != 1 {
			t.Errorf("known: %v", trees.trees)
		}
	})
}

// TestWhole checks that UsageOfAll counts every file, also after a truncated walk of Usage. The result of a cancelled walk is discarded.
func TestWhole(t *testing.T) {
	dir := t.TempDir()
	for i := range 10 {
		write(t, filepath.Join(dir, strconv.Itoa(i)), 10_000)
	}
	trees := Trees{Age: time.Hour}
	if u := trees.get(t.Context(), dir, time.Hour, 5); !u.Incomplete || u.Inodes != 5 {
		t.Errorf("bounded: %+v", u)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if u := trees.UsageOfAll(stopped, dir, time.Hour); !u.Incomplete {
		t.Errorf("stopped: %+v", u)
	}
	if u := trees.UsageOfAll(t.Context(), dir, time.Hour); u.Incomplete || u.Inodes != 11 || u.Bytes < 100_000 {
		t.Errorf("whole: %+v", u)
	}
	if u := trees.get(t.Context(), dir, time.Hour, 5); u.Incomplete || u.Inodes != 11 {
		t.Errorf("a call with a smaller limit got %+v", u)
	}
}

// TestSlowTree checks that the pause between two walks of a directory is a multiple of the duration of a walk. A running walk must not
// block calls for other directories, or calls that can return an earlier result.
func TestSlowTree(t *testing.T) {
	slow, other := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		trees := Trees{Age: time.Minute}
		trees.UsageOfAll(t.Context(), slow, 0)
		d := trees.treeOf(slow)
		d.last.Load().took = time.Minute
		write(t, filepath.Join(slow, "new"), 1)
		for range 19 {
			time.Sleep(time.Minute)
			if u := trees.UsageOfAll(t.Context(), slow, time.Second); u.Inodes != 1 {
				t.Fatalf("walked again: %+v", u)
			}
		}
		time.Sleep(time.Minute)
		d.whole <- struct{}{}
		if u := trees.UsageOfAll(t.Context(), slow, time.Second); u.Inodes != 1 {
			t.Errorf("while it is walked: %+v", u)
		}
		if u := trees.UsageOfAll(t.Context(), other, time.Second); u.Inodes != 1 {
			t.Errorf("another: %+v", u)
		}
		<-d.whole
		if u := trees.UsageOfAll(t.Context(), slow, time.Second); u.Inodes != 2 {
			t.Errorf("after that: %+v", u)
		}
	})
}

// TestFirstAsker checks that a caller that waits for the first walk of a directory returns when its context ends. A call of Usage does not
// wait for a walk of UsageOfAll, and does not replace the result of this walk.
func TestFirstAsker(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), 1)
	synctest.Test(t, func(t *testing.T) {
		trees := Trees{Age: time.Minute}
		d := trees.treeOf(dir)
		asks := func(ask func(context.Context, string) Usage) (got chan Usage, leave func()) {
			ctx, leave := context.WithCancel(t.Context())
			got = make(chan Usage, 1)
			go func() { got <- ask(ctx, dir) }()
			synctest.Wait()
			return got, leave
		}
		whole := func(ctx context.Context, dir string) Usage { return trees.UsageOfAll(ctx, dir, time.Second) }
		for name, x := range map[string]struct {
			walking timedLock
			ask     func(context.Context, string) Usage
		}{"whole": {d.whole, whole}, "figures": {d.part, trees.Usage}} {
			x.walking <- struct{}{}
			got, leave := asks(x.ask)
			if len(got) > 0 {
				t.Errorf("%s: walked twice at once", name)
			}
			leave()
			if u := <-got; !u.Incomplete {
				t.Errorf("%s: the caller whose context ended got %+v", name, u)
			}
			<-x.walking
		}
		d.whole <- struct{}{}
		got, leave := asks(trees.Usage)
		defer leave()
		if u := <-got; u.Inodes != 2 {
			t.Errorf("while every file is counted: %+v", u)
		}
		time.Sleep(time.Hour)
		write(t, filepath.Join(dir, "b"), 1)
		if u := trees.Usage(t.Context(), dir); u.Inodes != 2 {
			t.Errorf("while every file is counted, again: %+v", u)
		}
		<-d.whole
		if u := trees.UsageOfAll(t.Context(), dir, time.Second); u.Inodes != 3 {
			t.Errorf("afterwards: %+v", u)
		}
	})
}

func TestDevices(t *testing.T) {
	proc, sys := t.TempDir(), t.TempDir()
	text := "   7       0 loop0 1 0 2 3 0 0 0 0 0 1 1\n 179       0 mmcblk0 10 1 20 30 40 2 80 90 3 100 110 0 0 0 0\n 1 2 short\n"
	if err := os.WriteFile(filepath.Join(proc, "diskstats"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	want := Device{Name: "/dev/mmcblk0", Number: "179:0", Reads: 10, ReadsMerged: 1, SectorsRead: 20, ReadTime: 30 * time.Millisecond, Writes: 40, WritesMerged: 2, SectorsWritten: 80,
		WriteTime: 90 * time.Millisecond, Current: 3, BusyTime: 100 * time.Millisecond, QueueTime: 110 * time.Millisecond}
	if got := Devices(proc); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v", got)
	}
	if Devices(sys) != nil {
		t.Error("devices of nothing")
	}
	if err := os.MkdirAll(filepath.Join(sys, "dev/block/179:0"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sys, "dev/block/179:0/uevent"), []byte("MAJOR=179\nDEVNAME=mmcblk0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if a, b := DeviceFile(sys, "179:0"), DeviceFile(sys, "0:42"); a != "/dev/mmcblk0" || b != "0:42" {
		t.Errorf("got %s, %s", a, b)
	}
}

// TestCounted checks that bytes that are included in the counters of two devices are counted once, for the disk.
func TestCounted(t *testing.T) {
	sys := t.TempDir()
	for number, d := range map[string]struct{ name, below string }{"8:0": {"sda", ""}, "253:0": {"dm-0", "sda2"}, "9:0": {"md0", "sda1"}, "7:0": {"loop0", ""}, "252:1": {"zram1", ""}, "1:0": {"ram0", ""}, "259:0": {"rampart0", ""}} {
		dir := filepath.Join(sys, "dev/block", number)
		if err := os.MkdirAll(filepath.Join(dir, "slaves", d.below), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "uevent"), []byte("DEVNAME="+d.name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for number, want := range map[string]bool{"8:0": true, "253:0": false, "9:0": false, "7:0": false, "252:1": false, "1:0": false, "259:0": true, "0:42": true} {
		if got := IsPhysical(sys, number); got != want {
			t.Errorf("%s counts: %v", number, got)
		}
	}
}

// TestHostileTree checks files that a container creates during a walk. They must neither block the walk nor lead it out of the directory.
func TestHostileTree(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	for i := range 500 {
		write(t, filepath.Join(outside, strconv.Itoa(i)), 1)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666); err != nil {
		t.Fatal(err)
	}
	swapped := filepath.Join(dir, "swapped")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			os.Remove(swapped)
			switch n % 3 {
			case 0:
				os.Mkdir(swapped, 0o755)
			case 1:
				os.Symlink(outside, swapped)
			case 2:
				unix.Mkfifo(swapped, 0o666)
			}
		}
	}()
	for range 2000 {
		if u := measureDir(t.Context(), dir, maxFiles); u.Inodes < 2 || u.Inodes > 3 {
			t.Errorf("counted %d inodes", u.Inodes)
			break
		}
	}
	close(stop)
	<-done

	long := t.TempDir()
	deepen(t, long, 100, strings.Repeat("d", 200))
	if u := measureDir(t.Context(), long, maxFiles); u.Incomplete || u.Inodes != 102 || u.Bytes < payload {
		t.Errorf("of a path longer than any name: %+v", u)
	}
	deepen(t, dir, maxDepth+50, "d")
	if u := measureDir(t.Context(), dir, maxFiles); !u.Incomplete || u.Inodes < maxDepth || u.Inodes > maxDepth+5 {
		t.Errorf("figures of a deep directory: %+v", u)
	}
}

const payload = 1 << 20

// deepen creates n nested directories, and a file of payload bytes in the innermost directory. A program can create such a path step by
// step, although the path is longer than the kernel's limit.
func deepen(t *testing.T, dir string, n int, name string) {
	t.Helper()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := at.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		below, err := at.OpenRoot(name)
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = below
	}
	defer at.Close()
	if err := at.WriteFile("data", make([]byte, payload), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestChurn checks that a file is counted correctly while other files are removed during the walk.
func TestChurn(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "kept/data"), payload)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			name := filepath.Join(dir, strconv.Itoa(i%500))
			if os.Remove(name) != nil {
				os.WriteFile(name, nil, 0o644)
			}
		}
	}()
	for range 200 {
		if u := measureDir(t.Context(), dir, maxFiles); u.Incomplete || u.Inodes < 3 || u.Bytes < payload {
			t.Errorf("counted %+v", u)
			break
		}
	}
	close(stop)
	<-done
}
