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
func (t *Trees) Usage(ctx context.Context, dir string) Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if u, ok := t.known[dir]; ok && now.Sub(u.At) < t.Age {
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

func measure(ctx context.Context, dir string) (u Usage) {
	u.At = time.Now()
	type inode struct{ dev, ino uint64 }
	seen := map[inode]bool{}
	var top unix.Stat_t
	if unix.Lstat(dir, &top) != nil {
		return u
	}
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err != nil || unix.Lstat(path, &st) != nil {
			return nil // gone, or not to be read
		}
		if st.Dev != top.Dev {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if u.Inodes++; u.Inodes > maxFiles || ctx.Err() != nil {
			u.Cut = true
			return fs.SkipAll
		}
		if st.Nlink > 1 && !e.IsDir() {
			k := inode{uint64(st.Dev), st.Ino}
			if seen[k] {
				u.Inodes--
				return nil
			}
			seen[k] = true
		}
		u.Bytes += uint64(st.Blocks) * 512
		return nil
	})
	return u
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
