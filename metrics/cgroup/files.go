package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seqFile is less than what one read gives of a longer list: the kernel fills a page with
// whole lines.
const seqFile = 3 << 10

// maxFile bounds what is read of a file: a cgroup's own are far smaller, but for its
// list of processes.
const maxFile = 1 << 20

// buffers are what files are read into.
var buffers = sync.Pool{New: func() any { return &buffer{b: make([]byte, 16<<10)} }}

type buffer struct {
	b    []byte
	name []byte // of a file, as the kernel takes it
	err  error  // the first that is more than a file that is missing
}

// open opens a file below a directory, of which name has the parts.
func (b *buffer) open(at int, name ...string) (int, error) {
	b.name = b.name[:0]
	for _, part := range name {
		b.name = append(b.name, part...)
	}
	b.name = append(b.name, 0)
	for {
		fd, _, err := unix.Syscall6(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(&b.name[0])), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0, 0, 0)
		if err == unix.EINTR {
			continue
		}
		if err != 0 {
			return -1, err
		}
		return int(fd), nil
	}
}

// A dir is the directory of a cgroup in one hierarchy. One whose fd is -1 is
// missing, and has no files.
type dir struct {
	fd   int
	name string
	*buffer
	owner bool // gives the buffer back
}

// open opens a cgroup; the error wraps fs.ErrNotExist when it is gone.
func open(name string) (*dir, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	b := buffers.Get().(*buffer)
	b.err = nil
	return &dir{fd: fd, name: name, buffer: b, owner: true}, nil
}

// other opens the same cgroup in another hierarchy, or none if it is not there.
func (d *dir) other(name string) *dir {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		d.note(name, "", err)
		fd = -1
	}
	return &dir{fd: fd, name: name, buffer: d.buffer}
}

func (d *dir) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
	}
	if d.owner && len(d.b) < maxFile/4 { // a large one was needed once
		buffers.Put(d.buffer)
	}
}

// err is the first error but for files that are missing.
func (d *dir) err() error { return d.buffer.err }

// note keeps an error, unless the controller is not there, or the cgroup went while it
// was read.
func (d *dir) note(dir, file string, err error) {
	if d.buffer.err == nil && !missing(err) {
		d.buffer.err = fmt.Errorf("%s/%s: %w", dir, file, err)
	}
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)
}

// text is what a file says, until the next file is read; empty if it is missing.
func (d *dir) text(file string) []byte {
	if d.fd == -1 {
		return nil
	}
	fd, err := d.open(d.fd, file)
	if err != nil {
		d.note(d.name, file, err)
		return nil
	}
	defer unix.Close(fd)
	text, err := d.read(fd)
	if err != nil {
		d.note(d.name, file, err)
	}
	return text
}

// read reads a file that is open.
func (d *buffer) read(fd int) ([]byte, error) {
	n := 0
	for {
		more, err := unix.Read(fd, d.b[n:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		}
		n += more
		switch {
		case n < len(d.b): // the kernel gives all it has of such a file, or there is no more
			if more == 0 || n < seqFile {
				return d.b[:n], nil
			}
		case n >= maxFile:
			return nil, fmt.Errorf("more than %d bytes", maxFile)
		default:
			d.b = append(d.b, make([]byte, len(d.b))...)
		}
	}
}

// one reads a file with a number without a descriptor of its directory, and says which file it
// is; false: it cannot.
func (r Reader) one(b *buffer, controller, path, file string, inode *uint64) (uint64, bool) {
	fd, err := b.open(unix.AT_FDCWD, r.root, "/", controller, path, "/", file)
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
	text, err := b.read(fd)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(view(bytes.TrimSpace(text)), 10, 64)
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
	if text := view(s); text != "max" && text != "-1" {
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
		if n, err := strconv.ParseUint(view(v), 10, 64); ok && err == nil {
			f(view(k), n)
		}
	}
}

// view is a string of bytes that nobody changes while it is used.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

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
