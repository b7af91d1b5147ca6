package logs

import (
	"compress/gzip"
	"context"
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

// A logFiles consists of a log file and its rotated files. The directory root is trusted, but the files below it are not,
// because a pod may have mounted the host's log directory. Only regular files are opened there, and links are not
// followed. A file may have any apparent size, so opens and reads fail when ctx has ended.
type logFiles struct {
	ctx                  context.Context
	root, sub, dir, base string
}

// newLogFiles returns the log file at path with its rotated files.
func newLogFiles(ctx context.Context, path string) logFiles {
	root, name := untrusted.SplitLog(path)
	return logFiles{ctx: ctx, root: root, sub: filepath.Dir(name), dir: filepath.Dir(path), base: filepath.Base(path)}
}

// rotatedNames returns the names of the rotated files, without .gz and sorted by age. The oldest is
// first.
func (s logFiles) rotatedNames() ([]string, error) {
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

// list reads a directory. Its buffer is large enough to read some hundred names in one system call.
// os.ReadDir needs several calls, and may omit a file that is renamed between them.
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
	ctx    context.Context
	f      *os.File
	plain  bool
	newest bool   // it was the newest file when it was opened
	size   int64  // size when it was opened; set only for the newest file
	stem   string // last known name, without .gz
	scan   *scanner
	damage error // the error at which reading ended because the file is damaged
}

// open opens the file with the given name. If it does not exist, it opens the compressed file.
func (s logFiles) open(name string) (*file, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, err
	}
	f, err := untrusted.Open(s.root, filepath.Join(s.sub, name))
	if err == nil {
		p := &file{ctx: s.ctx, f: f, plain: true, newest: name == s.base, stem: name}
		p.scan = newScanner(untrusted.CancelableReader(s.ctx, f))
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
	c := &file{ctx: s.ctx, f: f, stem: name}
	if err := c.rewind(); err != nil {
		f.Close()
		return nil, err
	}
	return c, nil
}

// hasFile reports whether the file with the given name exists, compressed or not.
func (s logFiles) hasFile(name string) bool {
	_, plain := os.Lstat(filepath.Join(s.dir, name))
	_, packed := os.Lstat(filepath.Join(s.dir, name+".gz"))
	return plain == nil || packed == nil
}

// stopAtSize limits reading to the size that the file had when it was opened.
func (f *file) stopAtSize() {
	f.scan = newScanner(untrusted.CancelableReader(f.ctx, boundedReader{f.f, f.size}))
}

// boundedReader reads a file from its current offset up to the offset end.
type boundedReader struct {
	*os.File
	end int64
}

func (b boundedReader) Read(p []byte) (int, error) {
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

// next returns the next entry. If a compressed file is damaged, or the next maxSearch bytes of a file have no entry, it returns io.EOF,
// so that newer files can still be read.
func (f *file) next() (entry, error) {
	e, err := f.scan.next()
	if err != nil && (!f.plain || errors.Is(err, errNoLines)) && f.ctx.Err() == nil {
		f.logDamage(err)
		err = io.EOF
	}
	return e, err
}

func (f *file) logDamage(err error) {
	if f.damage == nil && err != io.EOF {
		f.damage = fmt.Errorf("lines are missing because %s is damaged: %w", f.f.Name(), err)
	}
}

// rewind moves to the start of a compressed file.
func (f *file) rewind() error {
	if _, err := f.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	z, err := gzip.NewReader(untrusted.CancelableReader(f.ctx, f.f))
	if err == nil {
		f.scan = newScanner(z)
		return nil
	}
	if f.ctx.Err() != nil {
		return f.ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	f.scan = newScanner(strings.NewReader(""))
	f.logDamage(err)
	return nil
}

// seekUnfinished moves back to the start of an unfinished last line, so that the next read begins there. The writer truncates such
// a line when the disk is full.
func (f *file) seekUnfinished() error {
	unread := int64(f.scan.end - f.scan.start)
	if !f.plain || unread == 0 {
		return nil
	}
	f.scan.start, f.scan.end = 0, 0
	_, err := f.f.Seek(-unread, io.SeekCurrent)
	return err
}

// nameOf returns the current name of a file and whether the file still exists. If the file was deleted, the
// name is its last known one. A file with a hidden name counts as deleted, because NFS gives such a name to
// an open file that is deleted.
func (s logFiles) nameOf(f *file) (name string, exists bool, err error) {
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

// openNewest opens the current log file, and lists the older, rotated files, the oldest first. The returned
// file is nil if there is no current log file. The directory is read after the file is opened. Otherwise a
// file that is rotated in between would be missing.
func (s logFiles) openNewest() (*file, []string, error) {
	f, err := s.open(s.base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	names, err := s.rotatedNames()
	if err != nil || f == nil {
		f.close()
		return nil, names, err
	}
	own, _, err := s.nameOf(f) // it may have been rotated after it was opened
	if err != nil {
		f.close()
		return nil, nil, err
	}
	if own != s.base {
		names = slices.DeleteFunc(names, func(n string) bool { return n >= own })
	}
	return f, names, nil
}

// openFirst opens the oldest rotated file for which match returns true. If there is no such file, it opens the
// current log file. If there is no current log file either, it returns nil.
func (s logFiles) openFirst(match func(rotated string) bool) (*file, error) {
	for {
		newest, older, err := s.openNewest()
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
		// The rotated file was deleted after the directory was read, so try again.
	}
}

var errGone = errors.New("the log was removed")

// openNext opens the next newer file than f. It returns nil if there is none yet, and errGone if the log was removed.
func (s logFiles) openNext(f *file) (*file, error) {
	name, exists, err := s.nameOf(f)
	if err != nil {
		return nil, err
	}
	if name == s.base {
		if exists {
			return nil, nil
		}
		return nil, errGone
	}
	return s.openFirst(func(rotated string) bool { return rotated > name })
}

// openOldest opens the oldest file that may contain lines of the given time or later.
func (s logFiles) openOldest(since time.Time) (*file, error) {
	return s.openFirst(func(rotated string) bool {
		info, err := os.Lstat(filepath.Join(s.dir, rotated))
		return err != nil || !info.ModTime().Before(since) // Lstat fails for a compressed file, whose lines are filtered later
	})
}
