package crilog

import (
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A pace is when a log was rotated and will be. Log.mu guards it.
type pace struct {
	last   time.Time   // of the last rotation; before the first one, when the log was opened
	failed time.Time   // of the last rotation that failed
	seen   time.Time   // when the file was last known to be there
	looked int64       // size at which the disk was looked at last
	short  bool        // the disk was short then
	timer  *time.Timer // rotates a log that is due and written to no more; nil: not armed
	recent []aside     // files that were rotated less than Interval ago, oldest first
}

// An aside is a rotated file.
type aside struct {
	name string
	at   time.Time
}

const (
	// retry is how long after a failed rotation the next is tried, and how often is looked
	// whether the file is still there.
	retry = time.Second
	// look is how much a log grows until its disk is looked at again.
	look = 1 << 20
	// A disk with less than one in shortPart free is short. A kubelet evicts pods at one in ten.
	shortPart = 20
)

// due reports whether the log is rotated before n bytes are written. One that is due but
// was rotated not long ago is rotated later, also if nothing more is written.
func (l *Log) due(now time.Time, n int64) bool {
	if l.o.MaxBytes <= 0 || l.size == 0 || l.size+n <= l.o.MaxBytes {
		return false
	}
	if since := now.Sub(l.pace.failed); since >= 0 && since < retry {
		return false
	}
	if l.paced(now) || l.size+n > l.o.Most || l.shortOfDisk() {
		return true
	}
	if l.pace.timer == nil {
		l.pace.timer = time.AfterFunc(l.pace.last.Add(l.o.Interval).Sub(now), l.late)
	}
	return false
}

// paced reports whether the last rotation is long enough ago. A clock that went back does
// not count: the time that time.Now gives goes on.
func (l *Log) paced(now time.Time) bool { return now.Sub(l.pace.last) >= l.o.Interval }

// late rotates a log that was due before it could be rotated.
func (l *Log) late() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pace.timer = nil
	if now := l.o.Now(); l.f != nil && l.size > l.o.MaxBytes && l.paced(now) {
		_ = l.rotate(now) // the next line tries again, and tells
	}
}

func (p *pace) stop() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// shortOfDisk looks at the disk from time to time as the log grows.
func (l *Log) shortOfDisk() bool {
	if p := &l.pace; p.looked == 0 || l.size-p.looked >= look {
		p.looked = l.size
		free, total := l.o.Free(l.f)
		p.short = free < max(total/shortPart, 2*l.o.Most)
	}
	return l.pace.short
}

// freeOf is how many bytes the disk of a file has free for anybody but root, and in all. Of
// one that cannot be looked at nothing is short.
func freeOf(f *os.File) (free, total int64) {
	var st unix.Statfs_t
	if unix.Fstatfs(int(f.Fd()), &st) != nil {
		return math.MaxInt64, 0
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize)
}
