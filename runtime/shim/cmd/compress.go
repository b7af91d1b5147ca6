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

// compressIdly compresses a file with the lowest priority.
func compressIdly(root, name string) error {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(50)
	if err := lowerPriority(); err != nil { // compress with the normal priority
		fmt.Fprintln(os.Stderr, "islet-shim: cannot lower the priority of compression:", err)
	}
	return compressFile(root, name)
}

const (
	lowestNice       = 19      // niceness
	ioprioIdle       = 3 << 13 // IOPRIO_CLASS_IDLE
	ioprioWhoProcess = 1       // IOPRIO_WHO_PROCESS
)

// lowerPriority sets the lowest CPU and disk priority for all threads of this process. A new thread
// inherits the priority of the thread that creates it. lowerPriority therefore lists the threads
// again until it finds no new one.
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
				unix.Setpriority(unix.PRIO_PROCESS, tid, lowestNice),
				unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0),
			)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
			// An error means that the kernel does not support disk priorities.
			unix.Syscall(unix.SYS_IOPRIO_SET, ioprioWhoProcess, uintptr(tid), ioprioIdle)
		}
	}
	return nil
}

// compressFile replaces a file with a compressed file with the suffix .gz. The given name is relative
// to root. A missing file is not an error. A file that is not regular is an error, and so is a path
// with a symlink below root: a pod that mounts the host's log directory can create both.
func compressFile(root, name string) error {
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
	if err := unix.Unlinkat(fd, tmp, 0); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by an interrupted compression
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
	// If a rotation has removed the file meanwhile, the compressed file is removed too.
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
	if errors.Is(err, fs.ErrNotExist) { // the rotation removed tmp together with the file
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Unlinkat(fd, base, 0)
}
