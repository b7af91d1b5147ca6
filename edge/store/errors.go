package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/islet-edge/islet/internal/readonly"
)

var (
	// ErrFull means that the database's disk or quota is full. Earlier successful writes are safe. Writes succeed again when there is
	// free space.
	ErrFull = errors.New("no space left on the disk of the database")
	// ErrClosed is the error of a write to a closed store.
	ErrClosed = errors.New("the store is closed")
	// errNewer means that a newer islet has migrated the database.
	errNewer = errors.New("it was written by a newer islet")
)

// explainError adds the path of the database to errors of SQLite. For a full disk or a locked database, it also adds advice.
func (s *Store) explainError(err error) error {
	switch {
	case err == nil:
		return nil
	case isFull(err):
		return fmt.Errorf("%s: %w (%w): free some space, no data are lost", s.path, ErrFull, err)
	case resultCode(err)&0xff == sqlite3.SQLITE_BUSY:
		return fmt.Errorf("%s: another process uses it, such as a second agent: %w", s.path, err)
	case resultCode(err) != 0:
		return fmt.Errorf("%s: %w", s.path, err)
	}
	return err // an error of the caller's function
}

func isFull(err error) bool {
	return resultCode(err)&0xff == sqlite3.SQLITE_FULL || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// resultCode returns the extended result code of an error of SQLite, or 0 for other errors.
func resultCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// isBroken reports whether the database could not be opened because of the file's content. A new file solves such a problem. If the disk is
// full or read-only, a new file does not help, and isBroken returns false.
func isBroken(err error) bool {
	if errors.Is(err, errNewer) {
		return false
	}
	if errors.Is(err, errContent) || errors.Is(err, fs.ErrPermission) {
		return true
	}
	switch c := resultCode(err); c & 0xff {
	case 0, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
		return false
	case sqlite3.SQLITE_IOERR:
		return c == sqlite3.SQLITE_IOERR_SHORT_READ || c == sqlite3.SQLITE_IOERR_CORRUPTFS
	}
	return true
}

// isCorrupt reports whether a statement failed because a part of the file is damaged.
func isCorrupt(err error) bool {
	c := resultCode(err)
	return c&0xff == sqlite3.SQLITE_CORRUPT || c&0xff == sqlite3.SQLITE_NOTADB ||
		c == sqlite3.SQLITE_IOERR_SHORT_READ || c == sqlite3.SQLITE_IOERR_CORRUPTFS
}

// isFrozen reports whether the disk is read-only or returns errors. The file may be intact, but this disk cannot be used.
func isFrozen(err error) bool {
	switch resultCode(err) & 0xff {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR:
		return true
	}
	return readonly.IsDiskFault(err)
}
