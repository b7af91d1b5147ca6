package disk

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// A Usage contains the sizes of all files below a directory.
type Usage struct {
	At            time.Time
	Bytes, Inodes uint64
	Incomplete    bool // true if not all files were counted
}

// Trees measures the disk usage of directories. Its methods are safe for concurrent use. A measurement of one directory does not delay
// measurements of other directories. A call returns when its context ends, even if the measurement is not complete.
type Trees struct {
	Age time.Duration // maximum age of a returned Usage

	mu    sync.Mutex
	trees map[string]*tree
	swept time.Time
}

// A tree contains the state of one measured directory.
type tree struct {
	lastUse     time.Time // protected by Trees.mu
	part, whole timedLock // a call of Usage holds the lock part, and a call of UsageOfAll holds the lock whole
	last        atomic.Pointer[measurement]
}

// A timedLock is a lock that can be acquired with a timeout. Sending to the channel acquires the lock, and receiving from the channel
// releases the lock.
type timedLock chan struct{}

// measurement is the result of a walk through a directory.
type measurement struct {
	Usage
	took  time.Duration
	limit uint64 // maximum number of files to count
}

const (
	// maxFiles is the maximum number of files that Usage counts. A container may create any number of files.
	maxFiles = 200_000
	// pauseRatio limits the CPU time for walks. A walk through very many files may take minutes, and a container that creates so many files
	// must not keep a core busy. The time between two walks through a directory is at least pauseRatio times the duration of a walk.
	pauseRatio = 20
)

// Usage returns the disk usage of a directory, as du -x does. It counts a file with several hard links once, and does not count mounted
// file systems. It ignores missing directories and files that disappear. It counts at most 200,000 files.
func (t *Trees) Usage(ctx context.Context, dir string) Usage { return t.get(ctx, dir, t.Age, maxFiles) }

// UsageOfAll is like Usage, but it counts all files. The caller limits the age of the result.
func (t *Trees) UsageOfAll(ctx context.Context, dir string, age time.Duration) Usage {
	return t.get(ctx, dir, age, math.MaxUint64)
}

// get returns the last result if it is recent enough, or measures the directory. While another call measures the same directory, get
// returns the last result. A call of Usage does not wait for a call of UsageOfAll, which may take minutes.
func (t *Trees) get(ctx context.Context, dir string, age time.Duration, limit uint64) Usage {
	d := t.treeOf(dir)
	mine := d.part
	if limit > maxFiles {
		mine = d.whole
	}
	if old := d.usableResult(limit); old != nil {
		if len(d.whole) > 0 {
			return old.Usage
		}
		select {
		case mine <- struct{}{}:
		default:
			return old.Usage
		}
	} else {
		select {
		case mine <- struct{}{}:
		case <-ctx.Done():
			return Usage{At: time.Now(), Incomplete: true}
		}
	}
	defer func() { <-mine }()
	now, last := time.Now(), d.last.Load()
	if old := d.usableResult(limit); old != nil && now.Sub(old.At) < max(age, pauseRatio*old.took) {
		return old.Usage
	}
	u := measureDir(ctx, dir, limit)
	found := &measurement{u, time.Since(now), limit}
	switch {
	case ctx.Err() != nil:
	case limit > maxFiles:
		d.last.Store(found)
	default:
		d.last.CompareAndSwap(last, found) // does not replace a result that a call of UsageOfAll has stored in the meantime
	}
	return u
}

// usableResult returns the last result, or nil if a new walk with the given limit could count more files.
func (d *tree) usableResult(limit uint64) *measurement {
	if m := d.last.Load(); m != nil && (!m.Incomplete || m.limit >= limit) {
		return m
	}
	return nil
}

// treeOf returns the tree of a directory, and removes trees that were not used recently.
func (t *Trees) treeOf(dir string) *tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	d := t.trees[dir]
	if d == nil {
		if t.trees == nil {
			t.trees = map[string]*tree{}
		}
		d = &tree{part: make(timedLock, 1), whole: make(timedLock, 1)}
		t.trees[dir] = d
	}
	d.lastUse = now
	if now.Sub(t.swept) > t.Age {
		maps.DeleteFunc(t.trees, func(_ string, old *tree) bool { return now.Sub(old.lastUse) > 2*t.Age })
		t.swept = now
	}
	return d
}

func measureDir(ctx context.Context, dir string, limit uint64) Usage {
	w := walk{ctx: ctx, limit: limit, Usage: Usage{At: time.Now()}, seen: map[inode]bool{}}
	var top unix.Stat_t
	if unix.Lstat(dir, &top) != nil {
		return w.Usage
	}
	w.dev = uint64(top.Dev)
	w.count(unix.AT_FDCWD, dir, &top, 0)
	return w.Usage
}

// A walk counts the files below a directory. A container may create symlinks and any number of files during the walk. The walk therefore
// opens directories relative to their parents and reads them in parts. A container can falsify only its own figures.
type walk struct {
	Usage
	ctx   context.Context //nolint:containedctx // ends the walk
	limit uint64          // maximum number of files to count
	dev   uint64
	seen  map[inode]bool // the files with several hard links that were counted; at most maxSeen
}

type inode uint64

const (
	maxDepth = 1000    // maximum number of directories that are open at the same time
	atOnce   = 256     // number of names that are read from a directory at once
	maxSeen  = 200_000 // above this number, a file with several hard links is counted once for each link
)

// count counts a file and, if it is a directory, the files below it. It returns false if the walk
// must end.
func (w *walk) count(at int, name string, st *unix.Stat_t, depth int) bool {
	if uint64(st.Dev) != w.dev {
		return true
	}
	if w.Inodes >= w.limit || w.ctx.Err() != nil {
		w.Incomplete = true
		return false
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if st.Nlink > 1 && !isDir {
		if w.seen[inode(st.Ino)] {
			return true
		}
		if len(w.seen) < maxSeen {
			w.seen[inode(st.Ino)] = true
		}
	}
	w.Inodes++
	w.Bytes += uint64(st.Blocks) * 512
	return !isDir || w.countBelow(at, name, depth)
}

func (w *walk) countBelow(at int, name string, depth int) bool {
	if depth == maxDepth {
		w.Incomplete = true
		return true
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // the directory was removed, or replaced by another file
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(atOnce)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && !w.count(fd, name, &st, depth+1) {
				return false
			}
		}
		if err != nil || len(names) == 0 {
			return true
		}
	}
}

// A Device contains the counters of a block device since the boot.
type Device struct {
	Name, Number                             string // for example /dev/sda, 8:0
	Reads, ReadsMerged, SectorsRead          uint64
	Writes, WritesMerged, SectorsWritten     uint64
	ReadTime, WriteTime, BusyTime, QueueTime time.Duration
	Current                                  uint64 // requests in progress
}

// maxText is the maximum number of bytes that are read from a file. It is enough for a thousand devices.
const maxText = 256 << 10

// Devices returns the counters of all block devices except ram and loop devices. It reads the proc file system at the given mount point.
func Devices(proc string) []Device {
	b := kernfile.Get()
	defer b.Put()
	text, _ := b.File(maxText, proc, "/diskstats") // after an error the text is shorter
	var out []Device
	for line := range bytes.Lines(text) {
		w := strings.Fields(string(line))
		if len(w) < 14 || strings.HasPrefix(w[2], "ram") || strings.HasPrefix(w[2], "loop") {
			continue
		}
		var n [11]uint64
		for i := range n {
			n[i], _ = strconv.ParseUint(w[3+i], 10, 64)
		}
		ms := func(i int) time.Duration { return time.Duration(min(n[i], 1<<40)) * time.Millisecond }
		out = append(out, Device{
			Name: "/dev/" + w[2], Number: w[0] + ":" + w[1],
			Reads: n[0], ReadsMerged: n[1], SectorsRead: n[2], ReadTime: ms(3),
			Writes: n[4], WritesMerged: n[5], SectorsWritten: n[6], WriteTime: ms(7),
			Current: n[8], BusyTime: ms(9), QueueTime: ms(10),
		})
	}
	return out
}

// DeviceFile returns the path of the device file for a device number such as 8:0. If there is no device file, it returns the number.
func DeviceFile(sys, number string) string {
	b := kernfile.Get()
	defer b.Put()
	// after an error the text is empty
	text, _ := b.File(maxText, sys, "/dev/block/", number, "/uevent")
	for line := range bytes.Lines(text) {
		if name, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("DEVNAME=")); ok {
			return "/dev/" + string(name)
		}
	}
	return number
}

// IsPhysical reports whether the I/O of a device belongs to the I/O of the machine. It returns false for a device that consists of other
// devices, such as an LVM volume, because its bytes are also counted for these devices. It also returns false for devices in memory or in a
// file.
func IsPhysical(sys, number string) bool {
	name := strings.TrimPrefix(DeviceFile(sys, number), "/dev/")
	for _, made := range []string{"loop", "ram", "zram"} {
		if rest, ok := strings.CutPrefix(name, made); ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
			return false
		}
	}
	below, _ := os.ReadDir(sys + "/dev/block/" + number + "/slaves") // an error means that there are no slaves
	return len(below) == 0
}

// DeviceNumber returns the device number, such as 8:1, of the file system that contains path.
func DeviceNumber(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return strconv.Itoa(int(unix.Major(uint64(st.Dev)))) + ":" + strconv.Itoa(int(unix.Minor(uint64(st.Dev)))), nil
}
