package crilog

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
	if l.intervalPassed(now) || l.size+n > l.o.MaxSize || l.shortOfDisk() {
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
		p.diskShort = free < max(total/shortPart, 2*l.o.MaxSize)
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
