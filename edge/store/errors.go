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
	// ErrFull says that the disk (or the quota) of the database has no room.
	// What was acknowledged before is safe; writing works again once there is room.
	ErrFull = errors.New("no space left on the disk of the database")
	// ErrClosed is what a write to a closed store gets.
	ErrClosed = errors.New("the store is closed")
	// errNewer is a database that a newer islet has migrated.
	errNewer = errors.New("it was written by a newer islet")
)

// explain names the disk in the error of a write.
func (s *Store) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case full(err):
		return fmt.Errorf("%s: %w (%w): make room, nothing is lost", s.path, ErrFull, err)
	case code(err)&0xff == sqlite3.SQLITE_BUSY:
		return fmt.Errorf("%s: another process uses it, such as a second agent: %w", s.path, err)
	case code(err) != 0:
		return fmt.Errorf("%s: %w", s.path, err)
	}
	return err // the caller's own
}

func full(err error) bool {
	return code(err)&0xff == sqlite3.SQLITE_FULL || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// code is the extended result code of SQLite, or 0.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// broken says whether an error at opening is the file's own fault, so that
// setting it aside helps. A full disk, or one that does not take writes, is not.
func broken(err error) bool {
	if errors.Is(err, errNewer) {
		return false
	}
	if errors.Is(err, errContent) || errors.Is(err, fs.ErrPermission) {
		return true
	}
	switch c := code(err); c & 0xff {
	case 0, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
		return false
	case sqlite3.SQLITE_IOERR:
		return c == sqlite3.SQLITE_IOERR_SHORT_READ || c == sqlite3.SQLITE_IOERR_CORRUPTFS
	}
	return true
}

// corrupt says that a statement met a part of the file that is broken.
func corrupt(err error) bool {
	c := code(err)
	return c&0xff == sqlite3.SQLITE_CORRUPT || c&0xff == sqlite3.SQLITE_NOTADB ||
		c == sqlite3.SQLITE_IOERR_SHORT_READ || c == sqlite3.SQLITE_IOERR_CORRUPTFS
}

// frozen says that the disk of the database takes no writes, or cannot be read: the file
// is as good as it was, but it cannot be used as it is.
func frozen(err error) bool {
	switch code(err) & 0xff {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR:
		return true
	}
	return readonly.Fault(err)
}
