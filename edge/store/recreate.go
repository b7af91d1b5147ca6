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

// Somebody may remove the database file while the agent runs. The agent could then continue to use the open file, but all data would be
// lost when the agent ends. The writer therefore checks its files after each write, and at Close. If they are missing, it creates them
// again before it reports the success of the write.

// A fileSet identifies the files of the open database.
type fileSet struct {
	db, wal     fs.FileInfo // nil if the file does not exist yet
	lastAttempt time.Time   // time of the last attempt to create the files again
	full        bool        // the database is in memory until the disk has room for the files
}

// isIntact reports whether all files are still at their paths. When a -wal file appears, isIntact records it.
func (f *fileSet) isIntact(path string, s *seal) bool {
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
	return !s.keyRemoved()
}

// restoreFiles creates the files of the database again, with all rows, if they were removed or replaced, or if the disk had no room for
// them at the start. It makes at most one attempt per repairEvery. At Close, a last attempt is permitted at any time. Only the writer may
// call restoreFiles.
func (s *Store) restoreFiles(last bool) {
	f := &s.files
	if !f.full && (f.db == nil || s.Health().Volatile != "") || !last && time.Since(f.lastAttempt) < repairEvery ||
		!f.full && f.isIntact(s.path, s.seal) {
		return
	}
	f.lastAttempt = time.Now()
	if err := s.recreateFiles(); err != nil {
		s.log.Error("the database is missing on the disk and cannot be created again yet: its rows are lost if the agent ends",
			"database", s.path, "error", err)
		return
	}
	if f.full {
		f.full = false
		s.setHealth(func(h *Health) { h.Volatile = "" })
	}
	s.log.Warn("the database was missing on the disk, and was created again", "database", s.path)
}

func (s *Store) recreateFiles() error {
	dir, made := filepath.Dir(s.path), s.path+newSuffix
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := s.seal.restore(); err != nil {
		return fmt.Errorf("create the key file %s again: %w", s.seal.place.Path(), err)
	}
	removeFiles(made)
	if err := durable.Write(made, nil, 0o600); err != nil { // SQLite would set another mode
		return err
	}
	_, err := s.db.Exec("VACUUM INTO ?", fileURL(made))
	if err == nil {
		err = syncFile(made) // while the removed database is still open
	}
	if err != nil {
		removeFiles(made)
		return err
	}
	s.dbMu.Lock()
	defer s.dbMu.Unlock()
	s.closeFiles() // errors are ignored, because the copy has all rows
	ctx := context.Background()
	err = (&replacement{path: s.path, kept: s.path + replacedSuffix}).run(0)
	if err == nil {
		err = s.open(ctx)
	}
	if err == nil {
		return nil
	}
	fill := s.openMemory
	if exists(made) { // the replacement has not begun
		fill = func(ctx context.Context, why error) error { return s.fillMemory(ctx, made, why) }
	}
	if full := fill(ctx, err); full != nil { // if fill succeeds, it logs err and records it in Health
		s.startEmpty(full)
	} else {
		s.signalRepaired() // so that the new database is marked as filled
	}
	return err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
