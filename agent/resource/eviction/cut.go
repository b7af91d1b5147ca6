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
	"github.com/islet-edge/islet/metrics/room"
)

// cuts are of termination logs, files of the pod's directory that a container may write to
// without end. Nobody reads more than their last 4 KiB.
type cuts struct {
	pods       string // the directory of all pods' directories; empty: nothing is cut
	used       uint64 // of the node's disk, when it was looked at last
	busy       chan struct{}
	background sync.WaitGroup
}

const (
	maxLastWords  = 64 << 10 // bytes on disk of one termination log
	keepLastWords = 16 << 10 // of its end
)

// cut has termination logs cut if the node's disk has become fuller since the last time.
func (e *Eviction) cut(r room.Room) {
	c, used := &e.cuts, taken(r.Node)
	if c.pods == "" {
		return
	}
	if used <= c.used+growth {
		c.used = min(c.used, used)
		return
	}
	select {
	case c.busy <- struct{}{}:
	default:
		return // a slow disk
	}
	c.used = used
	c.background.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				e.c.Log.Error("termination logs are not cut", "panic", r, "stack", string(debug.Stack()))
			}
			<-c.busy
		}()
		if err := cutLastWords(c.pods); err != nil {
			e.c.Log.Warn("a termination log is not cut, so a container may fill the disk with it", "error", err)
		}
	})
}

// cutLastWords cuts the termination logs of all pods: <pods>/<uid>/containers/<name>/<attempt>.
func cutLastWords(pods string) error {
	dirs, err := filepath.Glob(filepath.Join(pods, "*", "containers", "*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // gone
		}
		for _, e := range entries {
			if err := cutFile(dir, e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// cutFile frees what a file has on disk but for its end. What is left stays where it is, for
// the container may have the file open.
func cutFile(dir, name string) error {
	st, err := os.Lstat(filepath.Join(dir, name))
	if err != nil || !st.Mode().IsRegular() || onDisk(st) <= maxLastWords {
		return err
	}
	f, err := untrusted.OpenFile(dir, name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if begin := max(st.Size()-keepLastWords, 0) &^ 4095; begin > 0 {
		if unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, begin) == nil {
			if st, err = f.Stat(); err != nil || onDisk(st) <= maxLastWords {
				return err
			}
		}
	}
	// The file system makes no holes, or the rest lies beyond the end.
	end := make([]byte, keepLastWords)
	n, _ := f.ReadAt(end, max(st.Size()-keepLastWords, 0)) // what cannot be read is lost
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(end[:n], 0)
	return err
}

func onDisk(st fs.FileInfo) int64 {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return sys.Blocks * 512
	}
	return st.Size()
}
