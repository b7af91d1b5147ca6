package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/islet-edge/islet/internal/durable"
)

// A process goes on in a database file that somebody removed, and everything is lost when it
// ends. So the writer looks for its files after each write and at Close, and makes them again.

// A fileSet is the files of the database that is open.
type fileSet struct {
	db, wal fs.FileInfo // nil: there is none yet
	made    time.Time   // when they were made again last
}

// whole reports whether all files are where they were. It takes note of a new -wal.
func (f *fileSet) whole(path string, s *seal) bool {
	if now, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, f.db) {
		return false
	}
	now, err := os.Lstat(path + "-wal")
	if f.wal == nil && err == nil {
		f.wal = now
	}
	if f.wal != nil && (errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, f.wal)) {
		return false
	}
	return !s.lost()
}

// keepFiles makes the files of the database again if somebody removed or replaced them: with
// everything that was written. Only the writer calls it. It tries once in repairEvery, but for
// the last time.
func (s *Store) keepFiles(last bool) {
	f := &s.files
	if f.db == nil || s.Health().Volatile != "" || !last && time.Since(f.made) < repairEvery || f.whole(s.path, s.seal) {
		return
	}
	f.made = time.Now()
	if err := s.makeFilesAgain(); err != nil {
		s.log.Error("the database was removed while islet runs, and cannot be made again yet: what is stored is lost when the agent ends", "database", s.path, "error", err)
		return
	}
	s.log.Warn("the database was removed while islet runs, and has been made again", "database", s.path)
}

func (s *Store) makeFilesAgain() error {
	dir, made := filepath.Dir(s.path), s.path+".again"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := s.seal.restore(); err != nil {
		return fmt.Errorf("make the key file %s again: %w", s.seal.path, err)
	}
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := durable.Write(made, nil, 0o600); err != nil { // SQLite would give it another mode
		return err
	}
	if _, err := s.db.Exec("VACUUM INTO ?", made); err != nil {
		return errors.Join(err, os.Remove(made))
	}
	if err := syncFile(made); err != nil {
		return err
	}
	s.gate.Lock()
	defer s.gate.Unlock()
	s.closeFiles() // an error: nothing of it is needed any more
	from, ctx := made, context.Background()
	err := s.putInPlace(made)
	if err == nil {
		from, err = s.path, s.open(ctx)
	}
	if err == nil {
		return nil
	}
	if full := s.fillMemory(ctx, from, err); full != nil { // which logs and reports it
		s.startEmpty(full)
	}
	return err
}

// putInPlace gives the file that was made the name of the database. What somebody put there is kept
// beside it.
func (s *Store) putInPlace(made string) error {
	for _, suffix := range suffixes {
		if err := os.Rename(s.path+suffix, s.path+".replaced"+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Rename(made, s.path); err != nil {
		return err
	}
	return durable.Dir(filepath.Dir(s.path))
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
