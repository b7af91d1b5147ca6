package cgroup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/metrics/kernfile"
)

// maxFile bounds what is read of a file: a cgroup's own are far smaller, but for its
// list of processes.
const maxFile = 1 << 20

// A dir is the directory of a cgroup in one hierarchy. One whose fd is -1 is
// missing, and has no files.
type dir struct {
	fd   int
	name string
	*kernfile.Buffer
	first  *dir  // of the same cgroup: it keeps the error, and gives the buffer back; nil: this one
	failed error // the first that is more than a file that is missing
}

// open opens a cgroup; the error wraps fs.ErrNotExist when it is gone.
func open(name string) (*dir, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &dir{fd: fd, name: name, Buffer: kernfile.Get()}, nil
}

// other opens the same cgroup in another hierarchy, or none if it is not there.
func (d *dir) other(name string) *dir {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		d.note(name, "", err)
		fd = -1
	}
	return &dir{fd: fd, name: name, Buffer: d.Buffer, first: cmp.Or(d.first, d)}
}

func (d *dir) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
	}
	if d.first == nil {
		d.Put()
	}
}

// err is the first error but for files that are missing.
func (d *dir) err() error { return d.failed }

// note keeps an error, unless the controller is not there, or the cgroup went while it
// was read.
func (d *dir) note(dir, file string, err error) {
	if to := cmp.Or(d.first, d); to.failed == nil && !missing(err) {
		to.failed = fmt.Errorf("%s/%s: %w", dir, file, err)
	}
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)
}

// text is what a file says, until the next file is read; empty if it is missing. Of one that is
// longer than maxFile it is whole lines: a pod may have any number of processes, and has its
// figures all the same.
func (d *dir) text(file string) []byte {
	if d.fd == -1 {
		return nil
	}
	fd, err := d.Open(d.fd, file)
	if err != nil {
		d.note(d.name, file, err)
		return nil
	}
	defer unix.Close(fd)
	text, err := d.Read(fd, maxFile)
	if errors.Is(err, kernfile.ErrLong) {
		return text[:bytes.LastIndexByte(text, '\n')+1]
	}
	if err != nil {
		d.note(d.name, file, err)
		return nil
	}
	return text
}

// one reads a file with a number without a descriptor of its directory, and says which file it
// is; false: it cannot.
func (r Reader) one(b *kernfile.Buffer, controller, path, file string, inode *uint64) (uint64, bool) {
	fd, err := b.Open(unix.AT_FDCWD, r.root, "/", controller, path, "/", file)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if inode != nil {
		if unix.Fstat(fd, &st) != nil {
			return 0, false
		}
		*inode = st.Ino
	}
	text, err := b.Read(fd, maxFile)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(kernfile.View(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// inode is that of a file; 0: it is missing.
func (d *dir) inode(file string) uint64 {
	var st unix.Stat_t
	if d.fd == -1 || unix.Fstatat(d.fd, file, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Ino
}

// number reads a file with one number, or "max" for none. A missing file is zero.
func (d *dir) number(file string) uint64 {
	n, _ := d.numbers(file)
	return n
}

// limit reads a file with a limit; false: there is none, which zero is not.
func (d *dir) limit(file string) (n uint64, limited bool) {
	s := bytes.TrimSpace(d.text(file))
	if limited = len(s) > 0 && string(s) != "max"; limited {
		n = d.parse(file, s)
	}
	return n, limited
}

// numbers reads a file with one or two numbers, of which each may be "max": zero.
func (d *dir) numbers(file string) (first, second uint64) {
	s := bytes.TrimSpace(d.text(file))
	if len(s) == 0 {
		return 0, 0
	}
	a, b, two := bytes.Cut(s, []byte(" "))
	first = d.parse(file, a)
	if two {
		second = d.parse(file, b)
	}
	return first, second
}

func (d *dir) parse(file string, s []byte) uint64 {
	if text := kernfile.View(s); text != "max" && text != "-1" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			d.note(d.name, file, fmt.Errorf("not a number: %.40q", s))
		}
		return n
	}
	return 0
}

// pairs reads a file of lines with a name and a number; the name is valid in f only.
// What is no number is left out.
func (d *dir) pairs(file string, f func(k string, n uint64)) {
	for line := range bytes.Lines(d.text(file)) {
		k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if n, err := strconv.ParseUint(kernfile.View(v), 10, 64); ok && err == nil {
			f(kernfile.View(k), n)
		}
	}
}

// links is how many names a directory has, two more than cgroups below it in the kernel's own
// file system for them; 0: it is gone.
func links(name string) uint64 {
	var st unix.Stat_t
	if unix.Lstat(name, &st) != nil {
		return 0
	}
	return uint64(st.Nlink)
}

// maxChildren bounds how many cgroups are listed below one.
const maxChildren = 4096

// subdirectories lists the directories in one; none if it is gone.
func subdirectories(name string) ([]string, error) {
	f, err := os.Open(name)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	defer f.Close()
	var out []string
	for len(out) < maxChildren {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			if e.IsDir() {
				out = append(out, e.Name())
			}
		}
		if err != nil { // the end, or it has just gone
			break
		}
	}
	return out, nil
}
