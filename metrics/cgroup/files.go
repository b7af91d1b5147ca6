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

// maxFile is the maximum number of bytes that are read from a file. Only a list of processes can be longer.
const maxFile = 1 << 20

// A hierarchyDir is the directory of a cgroup in one hierarchy. An fd of -1 means that the directory is missing. All its files are then
// treated as missing.
type hierarchyDir struct {
	fd   int
	name string
	*kernfile.Buffer
	first      *hierarchyDir // the first dir of the cgroup, which stores the error and owns the buffer; nil in the first dir itself
	firstError error         // the first error; missing files are not errors
}

// openDir opens the directory of a cgroup. If the cgroup does not exist, the error wraps fs.ErrNotExist.
func openDir(name string) (*hierarchyDir, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &hierarchyDir{fd: fd, name: name, Buffer: kernfile.Get()}, nil
}

// openOther opens the directory of the same cgroup in another hierarchy. If the cgroup does not exist there, openOther returns a dir with
// the fd -1.
func (d *hierarchyDir) openOther(name string) *hierarchyDir {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		d.addError(name, "", err)
		fd = -1
	}
	return &hierarchyDir{fd: fd, name: name, Buffer: d.Buffer, first: cmp.Or(d.first, d)}
}

func (d *hierarchyDir) close() {
	if d.fd >= 0 {
		unix.Close(d.fd)
	}
	if d.first == nil {
		d.Put()
	}
}

// err returns the first error of reading the cgroup. Missing files are not errors.
func (d *hierarchyDir) err() error { return d.firstError }

// addError stores the first error. It ignores errors which mean that the controller is missing, or that the cgroup was removed.
func (d *hierarchyDir) addError(dir, file string, err error) {
	if to := cmp.Or(d.first, d); to.firstError == nil && !isMissing(err) {
		to.firstError = fmt.Errorf("%s/%s: %w", dir, file, err)
	}
}

func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)
}

// readText returns the content of a file, or nil if the file is missing. The content is valid until the next file is read. If a file is
// longer than maxFile, readText returns its first lines, so that a pod with very many processes has figures, too.
func (d *hierarchyDir) readText(file string) []byte {
	if d.fd == -1 {
		return nil
	}
	fd, err := d.Open(d.fd, file)
	if err != nil {
		d.addError(d.name, file, err)
		return nil
	}
	defer unix.Close(fd)
	text, err := d.Read(fd, maxFile)
	if errors.Is(err, kernfile.ErrLong) {
		return text[:bytes.LastIndexByte(text, '\n')+1]
	}
	if err != nil {
		d.addError(d.name, file, err)
		return nil
	}
	return text
}

// readNumber returns the number in a file of a cgroup. It does not need an open directory of the cgroup. It can also store the file's inode
// number. The second result is false after an error.
func (r Reader) readNumber(b *kernfile.Buffer, controller, path, file string, inode *uint64) (uint64, bool) {
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
	n, err := strconv.ParseUint(kernfile.StringView(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// inode returns a file's inode number, or 0 if the file is missing.
func (d *hierarchyDir) inode(file string) uint64 {
	var st unix.Stat_t
	if d.fd == -1 || unix.Fstatat(d.fd, file, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return 0
	}
	return st.Ino
}

// readNumber reads a file with one number. It returns 0 for "max" and for a missing file.
func (d *hierarchyDir) readNumber(file string) uint64 {
	n, _ := d.readNumbers(file)
	return n
}

// readLimit reads a file with a limit, which may be zero. The second result is false if there is no limit.
func (d *hierarchyDir) readLimit(file string) (n uint64, limited bool) {
	s := bytes.TrimSpace(d.readText(file))
	limited = len(s) > 0 && string(s) != "max"
	if limited {
		n = d.parse(file, s)
	}
	return n, limited
}

// readNumbers reads a file with one or two numbers. It returns 0 for "max".
func (d *hierarchyDir) readNumbers(file string) (first, second uint64) {
	s := bytes.TrimSpace(d.readText(file))
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

func (d *hierarchyDir) parse(file string, s []byte) uint64 {
	if text := kernfile.StringView(s); text != "max" && text != "-1" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			d.addError(d.name, file, fmt.Errorf("not a number: %.40q", s))
		}
		return n
	}
	return 0
}

// visitPairs calls the caller's function for each line that consists of a name and a number. It skips other lines. The name is valid only
// during the call.
func (d *hierarchyDir) visitPairs(file string, f func(k string, n uint64)) {
	for line := range bytes.Lines(d.readText(file)) {
		k, v, ok := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if n, err := strconv.ParseUint(kernfile.StringView(v), 10, 64); ok && err == nil {
			f(kernfile.StringView(k), n)
		}
	}
}

// linkCount returns the link count of a directory, or 0 if the directory does not exist. In cgroupfs the
// link count is the number of children plus two.
func linkCount(name string) uint64 {
	var st unix.Stat_t
	if unix.Lstat(name, &st) != nil {
		return 0
	}
	return uint64(st.Nlink)
}

// maxChildren is the maximum number of children that are listed for a cgroup.
const maxChildren = 4096

// listSubdirs returns the names of the directories in a directory. It returns no names if the
// directory does not exist.
func listSubdirs(name string) ([]string, error) {
	f, err := os.Open(name)
	if isMissing(err) {
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
		if err != nil { // the end of the directory, or the directory has been removed
			break
		}
	}
	return out, nil
}
