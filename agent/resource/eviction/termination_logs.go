package eviction

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
	"github.com/islet-edge/islet/metrics/headroom"
)

// terminationLogs limits the size of termination logs. These files are in the pod's directory, and containers can
// write to them without a limit. Only the last 4 KiB of a file are ever read.
type terminationLogs struct {
	pods       string // parent of all pods' directories; if it is empty, no log is truncated
	used       uint64 // used bytes of the node's disk at the last check
	busy       chan struct{}
	background sync.WaitGroup
}

const (
	maxTerminationLog  = 64 << 10 // bytes on disk at which a log is truncated
	keepTerminationLog = 16 << 10 // bytes at the end that are kept
)

// truncateIfFuller truncates termination logs if more of the node's disk is used than at the last check.
func (e *Eviction) truncateIfFuller(r headroom.Room) {
	c, used := &e.terminationLogs, usedBytes(r.Node)
	if c.pods == "" {
		return
	}
	if used <= c.used+measureGrowth {
		c.used = min(c.used, used)
		return
	}
	select {
	case c.busy <- struct{}{}:
	default:
		return // the previous run is still busy on a slow disk
	}
	c.used = used
	c.background.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				e.c.Log.Error("cannot truncate termination logs", "panic", r, "stack", string(debug.Stack()))
			}
			<-c.busy
		}()
		if err := cutTerminationLogs(c.pods); err != nil {
			e.c.Log.Warn("cannot truncate a termination log: a container may fill the disk with it", "error", err)
		}
	})
}

// cutTerminationLogs truncates the termination logs of all pods, which are in
// <pods>/<uid>/containers/<name>/<attempt>.
func cutTerminationLogs(pods string) error {
	dirs, err := filepath.Glob(filepath.Join(pods, "*", "containers", "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // removed meanwhile
		}
		for _, e := range entries {
			if err := cutFile(dir, e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// cutFile frees the disk space of a file except its end. If possible, the end keeps its offset, because a container
// may have the file open.
func cutFile(dir, name string) error {
	st, err := os.Lstat(filepath.Join(dir, name))
	if err != nil || !st.Mode().IsRegular() || diskUse(st) <= maxTerminationLog {
		return err
	}
	f, err := untrusted.OpenFile(dir, name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if begin := max(st.Size()-keepTerminationLog, 0) &^ 4095; begin > 0 {
		if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, begin) == nil {
			if st, err = f.Stat(); err != nil || diskUse(st) <= maxTerminationLog {
				return err
			}
		}
	}
	// The hole was not sufficient: either the file system does not support holes, or space beyond the end of the
	// file is allocated.
	end := make([]byte, keepTerminationLog)
	n, _ := f.ReadAt(end, max(st.Size()-keepTerminationLog, 0)) // data that cannot be read is lost
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(end[:n], 0)
	return err
}

func diskUse(st fs.FileInfo) int64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Blocks * 512
	}
	return st.Size()
}
