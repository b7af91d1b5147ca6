package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

// compressIdly is compress with the lowest priority.
func compressIdly(root, name string) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	if err := lowerPriority(); err != nil { // run even at the usual priority
		fmt.Fprintln(os.Stderr, "islet-shim: cannot lower the priority of compression:", err)
	}
	return compress(root, name)
}

const (
	lowest      = 19      // niceness
	idleIO      = 3 << 13 // IOPRIO_CLASS_IDLE
	ofOneThread = 1       // IOPRIO_WHO_PROCESS
)

// lowerPriority gives all threads of this process the lowest CPU and disk priority. New threads
// inherit it from the thread that creates them, so it repeats until it finds no new thread.
func lowerPriority() error {
	lowered := map[int]bool{}
	for more := true; more; {
		more = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, t := range threads {
			tid, err := strconv.Atoi(t.Name())
			if err != nil || lowered[tid] {
				continue
			}
			lowered[tid], more = true, true
			err = errors.Join(
				unix.Setpriority(unix.PRIO_PROCESS, tid, lowest),
				unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0),
			)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			// An error means that the kernel has no disk priorities.
			unix.Syscall(unix.SYS_IOPRIO_SET, ofOneThread, uintptr(tid), idleIO)
		}
	}
	return nil
}

// compress replaces the file name below root by name.gz. If the file does not exist, that is
// success. Other than regular files are left alone, and symlinks are not followed: a pod can place
// links among the host's logs and replace their directory by one.
func compress(root, name string) error {
	sub, base := filepath.Split(name)
	dir, err := untrusted.OpenDir(root, sub)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	here := "/proc/self/fd/" + strconv.Itoa(fd)
	in, err := untrusted.Open(here, base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := base + ".gz.tmp"
	if err := unix.Unlinkat(fd, tmp, 0); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by an interrupted run
		return err
	}
	out, err := untrusted.OpenFile(here, tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer unix.Unlinkat(fd, tmp, 0)
	w, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	if err = errors.Join(err, w.Close(), out.Close()); err != nil {
		return err
	}
	// If the file was removed meanwhile, because the log grows faster than it is compressed, keep
	// it removed.
	var before, now unix.Stat_t
	if err := unix.Fstat(int(in.Fd()), &before); err != nil {
		return err
	}
	err = unix.Fstatat(fd, base, &now, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) || err == nil && now.Ino != before.Ino {
		return nil
	}
	if err == nil {
		err = unix.Renameat(fd, tmp, fd, base+".gz")
	}
	if errors.Is(err, fs.ErrNotExist) { // removed together with its source
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Unlinkat(fd, base, 0)
}
