package crilog

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

// A rotationPace records past rotations and schedules the next one. Log.mu guards it.
type rotationPace struct {
	last        time.Time     // time of the last rotation, or the time when the log was opened
	failed      time.Time     // time of the last failed rotation
	lastSeen    time.Time     // time of the last check whether the file exists
	checkedSize int64         // size of the log at the last check of the disk
	diskShort   bool          // whether the disk was short of space at that check
	timer       *time.Timer   // rotates the log once Interval has passed; nil if it is not running
	recent      []rotatedFile // files rotated less than Interval ago, oldest first
}

// A rotatedFile is the name of a rotated file and the time of its rotation.
type rotatedFile struct {
	name string
	at   time.Time
}

const (
	// retryDelay is the delay after a failed rotation. It is also the interval at which the existence of
	// the file is checked.
	retryDelay = time.Second
	// checkBytes is the number of bytes by which a log grows between two checks of the disk.
	checkBytes = 1 << 20
	// shortPart defines when a disk is short of space: less than 1/shortPart of it is free. By
	// default, a kubelet evicts pods at 1/10.
	shortPart = 20
)

// isDue reports whether to rotate the log before n bytes are written. If the log has reached its size
// but Interval has not passed, isDue starts a timer, so that the log is rotated even if nothing more
// is written.
func (l *Log) isDue(now time.Time, n int64) bool {
	if l.o.MaxBytes <= 0 || l.size == 0 || l.size+n <= l.o.MaxBytes {
		return false
	}
	if since := now.Sub(l.pace.failed); since >= 0 && since < retryDelay {
		return false
	}
	if l.intervalPassed(now) || l.size+n > l.o.HardMaxBytes || l.shortOfDisk() {
		return true
	}
	if l.pace.timer == nil {
		l.pace.timer = time.AfterFunc(l.pace.last.Add(l.o.Interval).Sub(now), l.rotateLate)
	}
	return false
}

// intervalPassed reports whether the last rotation is at least Interval ago. It uses the monotonic
// clock reading, so setting the wall clock has no effect.
func (l *Log) intervalPassed(now time.Time) bool { return now.Sub(l.pace.last) >= l.o.Interval }

// rotateLate rotates a log that had reached its size before Interval had passed.
func (l *Log) rotateLate() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pace.timer = nil
	if now := l.o.Now(); l.f != nil && l.size > l.o.MaxBytes && l.intervalPassed(now) {
		_ = l.rotate(now) // the next write retries and reports the error
	}
}

func (p *rotationPace) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// shortOfDisk reports whether the disk is short of space. It checks the disk only once for every
// checkBytes of the log.
func (l *Log) shortOfDisk() bool {
	if p := &l.pace; p.checkedSize == 0 || l.size-p.checkedSize >= checkBytes {
		p.checkedSize = l.size
		free, total := l.o.DiskSpace(l.f)
		p.diskShort = free < max(total/shortPart, 2*l.o.HardMaxBytes)
	}
	return l.pace.diskShort
}

// diskSpace returns the free bytes (for unprivileged users) and the total bytes of the disk of a
// file. If statfs fails, it returns values that mean that the disk is not short of space.
func diskSpace(f *os.File) (free, total int64) {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return math.MaxInt64, 0
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize)
}

// stampFormat is the time format in the suffix of a rotated log, as in a kubelet. The names of the
// rotated files of a log sort by age.
const stampFormat = "20060102-150405"

// rotate renames the file and opens a new one. If the file was removed, rotate only opens a new one. If rotate fails, the
// log continues in the old file, and isDue waits before the next attempt. All operations use one open directory, because
// a pod may replace the directory with a symlink.
func (l *Log) rotate(now time.Time) (err error) {
	defer func() {
		if err != nil {
			l.pace.failed, err = now, fmt.Errorf("rotate log %s: %w", l.path, err)
		}
	}()
	sub, base := filepath.Split(l.rest)
	dir, err := untrusted.OpenDir(l.root, sub)
	if errors.Is(err, fs.ErrNotExist) {
		return l.restore(now)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	old, err := listRotated(dir, base)
	if err != nil {
		return err
	}
	at := now.UTC()
	if len(old) > 0 {
		// Names must sort by age even if the clock stops or is set back.
		if last := stampOf(base, old[len(old)-1]); at.Before(last.Add(time.Second)) {
			at = last.Add(time.Second)
		}
	}
	name := base + "." + at.Format(stampFormat)
	err = unix.Renameat(int(dir.Fd()), base, int(dir.Fd()), name)
	if errors.Is(err, fs.ErrNotExist) {
		return l.restore(now)
	}
	if err != nil {
		return err
	}
	if err := l.openIn("/proc/self/fd/"+strconv.Itoa(int(dir.Fd())), base); err != nil {
		return err // l.f, which was renamed, is still open
	}
	p := &l.pace
	paced, short := l.intervalPassed(now), p.diskShort
	p.recent = slices.DeleteFunc(p.recent, func(a rotatedFile) bool { return now.Sub(a.at) >= l.o.Interval })
	p.recent = append(p.recent, rotatedFile{name, now})
	p.stop()
	p.last, p.checkedSize, p.diskShort = now, 0, false
	kept, err := l.prune(dir, append(old, name), short)
	if l.o.Compress != nil {
		var names []string
		for _, o := range kept {
			if paced && !strings.HasSuffix(o, ".gz") && !p.mayBeFollowed(o) {
				names = append(names, sub+o)
			}
		}
		l.o.Compress(l.path, l.root, names)
	}
	return err
}

// wasRemoved reports whether the file was removed. A removed file uses disk space but cannot be read. wasRemoved checks the file at most
// once per retryDelay, and returns false between two checks.
func (l *Log) wasRemoved(now time.Time) bool {
	if since := now.Sub(l.pace.lastSeen); since >= 0 && since < retryDelay {
		return false
	}
	l.pace.lastSeen = now
	var st unix.Stat_t
	return unix.Fstat(int(l.f.Fd()), &st) == nil && st.Nlink == 0
}

// restore creates the directory and the file again, and closes the removed file.
func (l *Log) restore(now time.Time) error {
	err := l.makeDir()
	if err == nil {
		err = l.open()
	}
	if err != nil {
		return fmt.Errorf("recreate the removed log %s: %w", l.path, err)
	}
	l.pace.stop()
	l.pace.last, l.pace.checkedSize = now, 0
	return nil
}

// mayBeFollowed reports whether a rotated file is so recent that a reader may still follow it.
func (p *rotationPace) mayBeFollowed(name string) bool {
	return slices.ContainsFunc(p.recent, func(a rotatedFile) bool { return a.name == name })
}

// prune removes the oldest rotated files until there are at most MaxFiles files in total, and the rotated files have a total size of at
// most MaxFiles times MaxBytes or HardMaxBytes, whichever is larger. prune returns the remaining rotated files. A file that a reader may
// still follow is removed only if the total size is exceeded or the disk is short of space. The newest rotated file is never removed.
func (l *Log) prune(dir *os.File, old []string, short bool) ([]string, error) {
	if l.o.MaxFiles <= 0 {
		return old, nil
	}
	var sizes []int64
	var sum int64
	for _, name := range old {
		var st unix.Stat_t
		if err := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			st.Size = 0 // just compressed or removed
		}
		sizes, sum = append(sizes, st.Size), sum+st.Size
	}
	most := max(l.o.MaxBytes*int64(l.o.MaxFiles), l.o.HardMaxBytes)
	for len(old) > 1 {
		many := len(old) > max(l.o.MaxFiles-1, 1) && (short || !l.pace.mayBeFollowed(old[0]))
		if !many && sum <= most {
			break
		}
		// If the file is being compressed, remove the unfinished compressed file too.
		for _, name := range []string{old[0], old[0] + ".gz" + UnfinishedSuffix} {
			if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return old, fmt.Errorf("remove rotated log %s of %s: %w", name, l.path, err)
			}
		}
		sum -= sizes[0]
		old, sizes = old[1:], sizes[1:]
	}
	return old, nil
}

// UnfinishedSuffix is the suffix after .gz of the unfinished result of a compression.
const UnfinishedSuffix = ".tmp"

// listRotated returns the names of the rotated files of a log, oldest first.
func listRotated(dir *os.File, base string) ([]string, error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list rotated logs: %w", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		at, ok := strings.CutPrefix(name, base+".")
		_, err := time.Parse(stampFormat, strings.TrimSuffix(at, ".gz"))
		return !ok || err != nil
	})
	slices.Sort(names)
	return names, nil
}

// stampOf returns the time in the suffix of a rotated file.
func stampOf(base, name string) time.Time {
	at, _ := time.Parse(stampFormat, strings.TrimSuffix(strings.TrimPrefix(name, base+"."), ".gz"))
	return at
}
