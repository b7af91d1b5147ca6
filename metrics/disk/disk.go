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

// A Usage is what the files below a directory take.
type Usage struct {
	At            time.Time
	Bytes, Inodes uint64
	Cut           bool // there are more than were counted
}

// Trees measures directories. Its methods may be called at once; who measures one directory
// holds up nobody who asks for another, and nobody waits for longer than he wants to.
type Trees struct {
	Age time.Duration // how old a Usage may be to be given again

	mu    sync.Mutex
	known map[string]*tree
	swept time.Time
}

// A tree is a directory.
type tree struct {
	asked       time.Time // the caller holds Trees.mu
	part, whole turn      // of who measures it for figures, or every file of it
	last        atomic.Pointer[measured]
}

// A turn is taken by one at a time, by sending, who gives it back by receiving.
type turn chan struct{}

// measured is what a walk found.
type measured struct {
	Usage
	took time.Duration
	most uint64 // files that it was to count
}

const (
	// maxFiles bounds a walk for figures: a container may make any number of files.
	maxFiles = 200_000
	// patience is how many times as long as a walk took its Usage is given at least: one of
	// very many files may take minutes, and whoever made them must not keep a core busy.
	patience = 20
)

// Usage measures dir, as du -x does: a file with several names counts once, and what is
// mounted below does not. One that is not there, or goes, has nothing. It counts no more
// than 200,000 files.
func (t *Trees) Usage(ctx context.Context, dir string) Usage { return t.get(ctx, dir, t.Age, maxFiles) }

// Whole is Usage for one who needs to know of every file, and wants another age than others
// do.
func (t *Trees) Whole(ctx context.Context, dir string, age time.Duration) Usage {
	return t.get(ctx, dir, age, math.MaxUint64)
}

// get gives what was found before while somebody measures dir. Who asks for figures first does
// not wait for who counts every file: that may take minutes.
func (t *Trees) get(ctx context.Context, dir string, age time.Duration, most uint64) Usage {
	d := t.tree(dir)
	mine := d.part
	if most > maxFiles {
		mine = d.whole
	}
	if old := d.before(most); old != nil {
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
			return Usage{At: time.Now(), Cut: true}
		}
	}
	defer func() { <-mine }()
	now, last := time.Now(), d.last.Load()
	if old := d.before(most); old != nil && now.Sub(old.At) < max(age, patience*old.took) {
		return old.Usage
	}
	u := measure(ctx, dir, most)
	if found := (&measured{u, time.Since(now), most}); ctx.Err() != nil {
		return u
	} else if most > maxFiles {
		d.last.Store(found)
	} else {
		d.last.CompareAndSwap(last, found) // unless every file was counted meanwhile
	}
	return u
}

// before is what was found for one who asks for so many files; nil: nothing that will do.
func (d *tree) before(most uint64) *measured {
	if m := d.last.Load(); m != nil && (!m.Cut || m.most >= most) {
		return m
	}
	return nil
}

// tree is that of a directory. Those that nobody asks for any more are forgotten.
func (t *Trees) tree(dir string) *tree {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	d := t.known[dir]
	if d == nil {
		if t.known == nil {
			t.known = map[string]*tree{}
		}
		d = &tree{part: make(turn, 1), whole: make(turn, 1)}
		t.known[dir] = d
	}
	d.asked = now
	if now.Sub(t.swept) > t.Age {
		maps.DeleteFunc(t.known, func(_ string, old *tree) bool { return now.Sub(old.asked) > 2*t.Age })
		t.swept = now
	}
	return d
}

func measure(ctx context.Context, dir string, most uint64) Usage {
	w := walk{ctx: ctx, most: most, Usage: Usage{At: time.Now()}, seen: map[inode]bool{}}
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
	most uint64          // files to count
	dev  uint64
	seen map[inode]bool // with several names, up to maxSeen
}

type inode uint64

const (
	maxDepth = 1000    // directories open at once
	atOnce   = 256     // names
	maxSeen  = 200_000 // a file of several names that comes after them counts once each name
)

// one counts a file, and what is below it. It reports whether to go on.
func (w *walk) one(at int, name string, st *unix.Stat_t, depth int) bool {
	if uint64(st.Dev) != w.dev {
		return true
	}
	if w.Inodes >= w.most || w.ctx.Err() != nil {
		w.Cut = true
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

// maxText bounds what is read of a file: more than a machine with a thousand devices has.
const maxText = 256 << 10

// Devices reads the counters of all block devices but those that are made of memory or
// files (ram, loop). proc is where that file system is.
func Devices(proc string) []Device {
	b := kernfile.Get()
	defer b.Put()
	text, _ := b.File(maxText, proc, "/diskstats") // an error: it has as many as there are
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
		out = append(out, Device{Name: "/dev/" + w[2], Number: w[0] + ":" + w[1], Reads: n[0], ReadsMerged: n[1], SectorsRead: n[2], ReadTime: ms(3),
			Writes: n[4], WritesMerged: n[5], SectorsWritten: n[6], WriteTime: ms(7), Current: n[8], BusyTime: ms(9), QueueTime: ms(10)})
	}
	return out
}

// Name gives the device file of a number such as 8:0, or the number where there is none.
func Name(sys, number string) string {
	b := kernfile.Get()
	defer b.Put()
	text, _ := b.File(maxText, sys, "/dev/block/", number, "/uevent") // an error: it has no name
	for line := range bytes.Lines(text) {
		if name, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("DEVNAME=")); ok {
			return "/dev/" + string(name)
		}
	}
	return number
}

// Counted reports whether what goes through a device goes to a disk, and through no other device
// that counts it, too: it is made neither of others, as by LVM, nor of memory or a file.
func Counted(sys, number string) bool {
	name := strings.TrimPrefix(Name(sys, number), "/dev/")
	for _, made := range []string{"loop", "ram", "zram"} {
		if rest, ok := strings.CutPrefix(name, made); ok && rest != "" && strings.Trim(rest, "0123456789") == "" {
			return false
		}
	}
	below, _ := os.ReadDir(sys + "/dev/block/" + number + "/slaves") // an error: it has none
	return len(below) == 0
}

// NumberOf is the number of the device that a path's file system is on, such as 8:1.
func NumberOf(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return strconv.Itoa(int(unix.Major(uint64(st.Dev)))) + ":" + strconv.Itoa(int(unix.Minor(uint64(st.Dev)))), nil
}
