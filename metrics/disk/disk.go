// Package disk measures what lies below directories, and what devices have done.
//
//	Trees.Usage: a walk of a directory, again after Age -> bytes, inodes
//	Devices: /proc/diskstats     Name: 8:0 -> /dev/sda
package disk

import (
	"bufio"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Usage is what the files below a directory take.
type Usage struct {
	At            time.Time
	Bytes, Inodes uint64
	Cut           bool // there are more than were counted
}

// Trees measures directories. Its methods may be called at once.
type Trees struct {
	Age time.Duration // how old a Usage may be to be given again

	mu    sync.Mutex
	known map[string]Usage
	swept time.Time
}

// maxFiles bounds a walk: a container may make any number of files.
const maxFiles = 200_000

// Usage measures dir, as du -x does: a file with several names counts once, and what is
// mounted below does not. One that is not there, or goes, has nothing.
func (t *Trees) Usage(ctx context.Context, dir string) Usage { return t.Within(ctx, dir, t.Age) }

// Within is Usage for one that wants another age than others do.
func (t *Trees) Within(ctx context.Context, dir string, age time.Duration) Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if u, ok := t.known[dir]; ok && now.Sub(u.At) < age {
		return u
	}
	u := measure(ctx, dir)
	if t.known == nil {
		t.known = map[string]Usage{}
	}
	if now.Sub(t.swept) > t.Age { // forget directories that nobody asks for any more
		for k, old := range t.known {
			if now.Sub(old.At) > 2*t.Age {
				delete(t.known, k)
			}
		}
		t.swept = now
	}
	t.known[dir] = u
	return u
}

func measure(ctx context.Context, dir string) Usage {
	w := walk{ctx: ctx, Usage: Usage{At: time.Now()}, seen: map[inode]bool{}}
	var top unix.Stat_t
	if unix.Lstat(dir, &top) != nil {
		return w.Usage
	}
	w.dev = uint64(top.Dev)
	w.one(unix.AT_FDCWD, dir, &top, 0)
	return w.Usage
}

// A walk goes down by the descriptors of directories, and reads each in parts: a container
// may put links and any number of files there while it goes on, and only its own figure is
// wrong then.
type walk struct {
	Usage
	ctx  context.Context //nolint:containedctx // lives as long as the walk
	dev  uint64
	seen map[inode]bool // with several names
}

type inode uint64

const (
	maxDepth = 200 // directories open at once
	atOnce   = 256 // names
)

// one counts a file, and what is below it. It reports whether to go on.
func (w *walk) one(at int, name string, st *unix.Stat_t, depth int) bool {
	if uint64(st.Dev) != w.dev {
		return true
	}
	if w.Inodes >= maxFiles || w.ctx.Err() != nil {
		w.Cut = true
		return false
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if st.Nlink > 1 && !isDir {
		if w.seen[inode(st.Ino)] {
			return true
		}
		w.seen[inode(st.Ino)] = true
	}
	w.Inodes++
	w.Bytes += uint64(st.Blocks) * 512
	return !isDir || w.below(at, name, depth)
}

func (w *walk) below(at int, name string, depth int) bool {
	if depth == maxDepth {
		w.Cut = true
		return true
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true // gone, or something else now
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(atOnce)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && !w.one(fd, name, &st, depth+1) {
				return false
			}
		}
		if err != nil || len(names) == 0 {
			return true
		}
	}
}

// A Device is what a block device has done since boot.
type Device struct {
	Name, Number                             string // such as /dev/sda, 8:0
	Reads, ReadsMerged, SectorsRead          uint64
	Writes, WritesMerged, SectorsWritten     uint64
	ReadTime, WriteTime, BusyTime, QueueTime time.Duration
	Current                                  uint64 // requests that are under way
}

// Devices reads the counters of all block devices but those that are made of memory or
// files (ram, loop). proc is where that file system is.
func Devices(proc string) []Device {
	f, err := os.Open(filepath.Join(proc, "diskstats"))
	if err != nil {
		return nil
	}
	defer f.Close()
	var out []Device
	for in := bufio.NewScanner(f); in.Scan(); {
		w := strings.Fields(in.Text())
		if len(w) < 14 || strings.HasPrefix(w[2], "ram") || strings.HasPrefix(w[2], "loop") {
			continue
		}
		var n [11]uint64
		for i := range n {
			n[i], _ = strconv.ParseUint(w[3+i], 10, 64)
		}
		ms := func(i int) time.Duration { return time.Duration(min(n[i], 1<<40)) * time.Millisecond }
		out = append(out, Device{Name: "/dev/" + w[2], Number: w[0] + ":" + w[1], Reads: n[0], ReadsMerged: n[1], SectorsRead: n[2], ReadTime: ms(3),
			Writes: n[4], WritesMerged: n[5], SectorsWritten: n[6], WriteTime: ms(7), Current: n[8], BusyTime: ms(9), QueueTime: ms(10)})
	}
	return out
}

// Name gives the device file of a number such as 8:0, or the number where there is none.
func Name(sys, number string) string {
	b, err := os.ReadFile(filepath.Join(sys, "dev/block", number, "uevent"))
	if err != nil {
		return number
	}
	for line := range strings.Lines(string(b)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
			return "/dev/" + name
		}
	}
	return number
}

// NumberOf is the number of the device that a path's file system is on, such as 8:1.
func NumberOf(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return strconv.Itoa(int(unix.Major(uint64(st.Dev)))) + ":" + strconv.Itoa(int(unix.Minor(uint64(st.Dev)))), nil
}
