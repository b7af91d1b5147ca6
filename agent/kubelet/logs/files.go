package logs

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/untrusted"
)

// A set is a log file with its rotated predecessors. root is trusted. A pod that mounts the host's
// log directory may have changed anything below it, so only regular files are opened there, and
// links are not followed.
type set struct{ root, sub, dir, base string }

// newSet splits <logs>/<namespace>_<name>_<uid>/<container>/<file> after <logs>, and any other path
// before its last element.
func newSet(path string) set {
	dir, base := filepath.Dir(path), filepath.Base(path)
	pod := filepath.Dir(dir)
	if strings.Count(filepath.Base(pod), "_") >= 2 {
		return set{root: filepath.Dir(pod), sub: filepath.Join(filepath.Base(pod), filepath.Base(dir)), dir: dir, base: base}
	}
	return set{root: dir, sub: ".", dir: dir, base: base}
}

// rotated returns the names of the rotated files without .gz, oldest first.
func (s set) rotated() ([]string, error) {
	entries, err := list(s.root, s.sub)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e, s.base+".") && !strings.HasSuffix(e, ".tmp") {
			names = append(names, strings.TrimSuffix(e, ".gz"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// list reads a directory in one system call for up to some hundred files. With several calls, as in
// os.ReadDir, a file that is renamed meanwhile may be missing.
func list(root, sub string) ([]string, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	d, err := r.OpenFile(sub, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var names []string
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(int(d.Fd()), buf)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", filepath.Join(root, sub), err)
		}
		if n == 0 {
			return names, nil
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
}

// A file is one open file of a set.
type file struct {
	f      *os.File
	plain  bool
	newest bool   // it was the newest when it was opened
	size   int64  // of the newest file when it was opened
	stem   string // last known name, without .gz
	scan   *scanner
	bad    error // the file is damaged and ends here
}

// open opens the file of that name, or its compressed form.
func (s set) open(name string) (*file, error) {
	f, err := untrusted.Open(s.root, filepath.Join(s.sub, name))
	if err == nil {
		p := &file{f: f, plain: true, newest: name == s.base, stem: name, scan: newScanner(f)}
		if p.newest {
			info, err := f.Stat()
			if err != nil {
				f.Close()
				return nil, err
			}
			p.size = info.Size()
		}
		return p, nil
	}
	if !errors.Is(err, fs.ErrNotExist) || name == s.base {
		return nil, err
	}
	f, err = untrusted.Open(s.root, filepath.Join(s.sub, name+".gz"))
	if err != nil {
		return nil, err
	}
	c := &file{f: f, stem: name}
	if err := c.rewind(); err != nil {
		f.Close()
		return nil, err
	}
	return c, nil
}

// has reports whether a file of that name or its compressed form exists.
func (s set) has(name string) bool {
	_, plain := os.Lstat(filepath.Join(s.dir, name))
	_, packed := os.Lstat(filepath.Join(s.dir, name+".gz"))
	return plain == nil || packed == nil
}

// stopAtSize makes the file end where it ended when it was opened.
func (f *file) stopAtSize() { f.scan = newScanner(bounded{f.f, f.size}) }

// bounded reads a file from its offset, up to end.
type bounded struct {
	*os.File
	end int64
}

func (b bounded) Read(p []byte) (int, error) {
	at, err := b.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	if at >= b.end {
		return 0, io.EOF
	}
	return b.File.Read(p[:min(int64(len(p)), b.end-at)])
}

func (f *file) close() {
	if f != nil {
		f.f.Close()
	}
}

// next returns the next entry. A damaged compressed file ends at the damage, so that newer files
// can still be read.
func (f *file) next() (entry, error) {
	e, err := f.scan.next()
	if err != nil && !f.plain {
		f.damaged(err)
		err = io.EOF
	}
	return e, err
}

func (f *file) damaged(err error) {
	if f.bad == nil && err != io.EOF {
		f.bad = fmt.Errorf("lines are missing because %s is damaged: %w", f.f.Name(), err)
	}
}

// rewind restarts a compressed file.
func (f *file) rewind() error {
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(f.f)
	if err == nil {
		f.scan = newScanner(z)
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	f.scan = newScanner(strings.NewReader(""))
	f.damaged(err)
	return nil
}

// again lets the next read start at an unfinished line: its writer truncates it when the disk is
// full.
func (f *file) again() error {
	unread := int64(f.scan.end - f.scan.start)
	if !f.plain || unread == 0 {
		return nil
	}
	f.scan.start, f.scan.end = 0, 0
	_, err := f.f.Seek(-unread, io.SeekCurrent)
	return err
}

// name returns the current name of a file, or its last name, and whether it still exists. NFS
// renames an open file that is deleted to a hidden name.
func (s set) name(f *file) (name string, exists bool, err error) {
	if !f.plain {
		return f.stem, true, nil
	}
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.f.Fd()))
	if err != nil {
		return "", false, err
	}
	link, deleted := strings.CutSuffix(link, " (deleted)")
	if name = filepath.Base(link); name != s.base && !strings.HasPrefix(name, s.base+".") {
		return f.stem, false, nil
	}
	f.stem = name
	return name, !deleted, nil
}

// newest opens the current log file, nil if there is none, and lists the older rotated ones, oldest
// first. Listing first could miss a file that is rotated before the newest is opened.
func (s set) newest() (*file, []string, error) {
	f, err := s.open(s.base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	names, err := s.rotated()
	if err != nil || f == nil {
		f.close()
		return nil, names, err
	}
	own, _, err := s.name(f) // it may have been rotated meanwhile
	if err != nil {
		f.close()
		return nil, nil, err
	}
	if own != s.base {
		names = slices.DeleteFunc(names, func(n string) bool { return n >= own })
	}
	return f, names, nil
}

// first opens the oldest matching file, rotated or not; nil: there is none.
func (s set) first(match func(rotated string) bool) (*file, error) {
	for {
		newest, older, err := s.newest()
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(older, match)
		if i < 0 {
			return newest, nil
		}
		newest.close()
		f, err := s.open(older[i])
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		// Deleted since the directory was read: try again.
	}
}

var errGone = errors.New("the log was removed")

// after opens the file after f. It returns nil if there is none yet, and errGone if the log was
// removed.
func (s set) after(f *file) (*file, error) {
	name, exists, err := s.name(f)
	if err != nil {
		return nil, err
	}
	if name == s.base {
		if exists {
			return nil, nil
		}
		return nil, errGone
	}
	return s.first(func(rotated string) bool { return rotated > name })
}

// oldest opens the oldest file with lines since that time.
func (s set) oldest(since time.Time) (*file, error) {
	return s.first(func(rotated string) bool {
		info, err := os.Lstat(filepath.Join(s.dir, rotated))
		return err != nil || !info.ModTime().Before(since) // compressed: its lines are filtered later
	})
}
