package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/islet-edge/islet/internal/durable"
)

// A database is replaced in steps after each of which the power may fail. At every time the next start finds all rows: in the old database,
// or in a complete new one.
//
//	build   islet.db.new        copied rows; the next start removes this file and begins again from the old database
//	finish  islet.db.next-ID    the same file, complete and on the disk; from now on, the next start continues with the steps below
//	keep    islet.db.corrupt-TIME or .replaced: further names of the old files
//	clear   islet.db-wal and -shm of the old database are removed, because SQLite would apply them to the new one
//	install islet.db            the new database
//
// The ID identifies the old database by its inode and its modification time. If another program, such as an older islet, has put another
// database in its place, the new database is outdated. The next start then renames it like a broken
// database, because it may have rows that no other file has.
const (
	newSuffix      = ".new"
	nextSuffix     = ".next-"
	replacedSuffix = ".replaced"
	corruptSuffix  = ".corrupt-"
)

// A replacement replaces the files of the database at a path with a complete new database.
type replacement struct {
	path string // the database
	next string // the new database, after finish
	kept string // name under which the old database is kept
}

// steps returns the steps after the new database was built.
func (r *replacement) steps() []func() error {
	return []func() error{r.finish, r.keep, r.clear, r.install}
}

// run carries out the steps from the given one on.
func (r *replacement) run(first int) error {
	for _, step := range r.steps()[first:] {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// finish renames the new database, so that the next start continues with it. The old database must be closed.
func (r *replacement) finish() error {
	made := r.path + newSuffix
	if err := syncFile(made); err != nil {
		return err
	}
	_ = syncFile(r.path) // its modification time must survive a power cut; the database may be missing or unwritable
	r.next = nextName(r.path)
	return r.rename(made, r.next)
}

// keep links the old files to further names. If the file system has no links, keep renames the files. If there is no old database, keep
// does nothing, so that the database of an earlier replacement is kept.
func (r *replacement) keep() error {
	if !exists(r.path) {
		return nil
	}
	for _, suffix := range suffixes {
		from, to := r.path+suffix, r.kept+suffix
		_ = os.Remove(to) // a file of an earlier replacement; if this fails, the rename below fails, too
		if os.Link(from, to) == nil {
			continue
		}
		if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return durable.SyncDir(filepath.Dir(r.path))
}

func (r *replacement) clear() error {
	for _, suffix := range suffixes[1:] {
		if err := os.Remove(r.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return durable.SyncDir(filepath.Dir(r.path))
}

func (r *replacement) install() error { return r.rename(r.next, r.path) }

func (r *replacement) rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(r.path))
}

// nextName returns the name of a complete new database that replaces the present database at a path.
func nextName(path string) string {
	id := "0-0" // there is no database
	if fi, err := os.Lstat(path); err == nil {
		id = fmt.Sprintf("%x-%x", fi.Sys().(*syscall.Stat_t).Ino, fi.ModTime().UnixNano())
	}
	return path + nextSuffix + id
}

// findNext returns the complete new database with which the replacement of the database continues, or "" if there is none. It also returns
// the complete new databases of replacements that do not continue.
func findNext(path string) (next string, outdated []string) {
	for _, name := range listFiles(path + nextSuffix) {
		if name == nextName(path) || next == "" && !exists(path) {
			next = name
		} else {
			outdated = append(outdated, name)
		}
	}
	return next, outdated
}

// continueReplacement completes a replacement that was interrupted by the end of a former process.
func (s *Store) continueReplacement() error {
	next, outdated := findNext(s.path)
	removeFiles(s.path + newSuffix)
	for _, name := range outdated {
		kept := corruptName(s.path)
		if err := os.Rename(name, kept); err != nil {
			s.log.Error("an interrupted replacement does not belong to the present database and cannot be renamed",
				"database", name, "error", err)
			continue
		}
		s.log.Warn("an interrupted replacement does not belong to the present database and is not used", "database", s.path, "kept", kept)
		s.pruneBroken(kept)
	}
	if next == "" {
		return nil
	}
	r, first := &replacement{path: s.path, next: next, kept: keptName(s.path)}, 2 // from clear on
	if r.kept == "" {
		r.kept, first = corruptName(s.path), 1 // from keep on
	}
	if err := r.run(first); err != nil {
		return err
	}
	s.log.Warn("an interrupted replacement of the database was completed", "database", s.path, "kept", r.kept)
	if strings.HasPrefix(r.kept, s.path+corruptSuffix) && exists(r.kept) {
		s.setHealth(func(h *Health) { h.Aside = r.kept })
	}
	s.pruneBroken(r.kept)
	return nil
}

// keptName returns the further name that the database at a path already has, or "".
func keptName(path string) string {
	now, err := os.Lstat(path)
	for _, name := range append(listFiles(path+corruptSuffix), path+replacedSuffix) {
		if fi, err2 := os.Lstat(name); err == nil && err2 == nil && os.SameFile(now, fi) {
			return name
		}
	}
	return ""
}

// corruptName returns a new name for a broken database.
func corruptName(path string) string {
	name := path + corruptSuffix + time.Now().UTC().Format("20060102T150405Z")
	for base, n := name, 1; exists(name); n++ { // the name may already exist if the clock stands still
		name = fmt.Sprintf("%s.%d", base, n)
	}
	return name
}

// buildDatabase builds a new database from the rows of the present one, which is closed. It returns the number of readable rows. After an
// error there is no new database.
func (s *Store) buildDatabase(ctx context.Context) (n int, err error) {
	made := s.path + newSuffix
	removeFiles(made)
	defer func() {
		if err != nil {
			removeFiles(made)
		}
	}()
	if err := ensurePrivate(made); err != nil {
		return 0, err
	}
	if err := s.openAt(ctx, connectionStrings(made)); err != nil {
		return 0, err
	}
	n, err = s.fillRows(ctx, s.path)
	if err != nil && ctx.Err() == nil && !isFull(err) && !isFrozen(err) { // if ctx has ended, the old database stays in its place
		s.log.Error("not all pages of the broken database could be read", "database", s.path, "error", err)
		err = nil
	}
	if err = errors.Join(err, s.closeFiles()); err == nil {
		err = checkWhole(made)
	}
	return n, err
}

// listFiles returns the files whose paths begin with the given text, in lexical order. The directory may have any name, unlike in a pattern
// of filepath.Glob. An unreadable directory has no files.
func listFiles(begin string) (paths []string) {
	dir, base := filepath.Split(begin)
	files, _ := os.ReadDir(cmp.Or(dir, "."))
	for _, f := range files {
		if strings.HasPrefix(f.Name(), base) {
			paths = append(paths, dir+f.Name())
		}
	}
	return paths
}

// removeFiles removes the files of an unused database. It ignores errors.
func removeFiles(path string) {
	for _, suffix := range suffixes {
		_ = os.Remove(path + suffix)
	}
}
