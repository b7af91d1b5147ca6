package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/islet-edge/islet/internal/readonly"
)

// repairEvery is the minimum interval between repairs. On a failing SD card, more repairs would not help, and would wear it out.
const repairEvery = time.Minute

// A repair is a request to the writer to repair the database. A reader sends it after an error.
type repair struct {
	why  error
	done chan<- bool // receives true if a retry of the read may succeed
}

// readOnly reports whether the database's disk is read-only.
func readOnly(path string) bool { return readonly.CheckDisk(filepath.Dir(path)) }

// replace replaces a broken database with a new one with all readable rows. If that fails, as on a full disk, the new database is in
// memory, and the files keep all readable rows. The next start then finds the broken database, or the complete new one, again.
func (s *Store) replace(ctx context.Context, why error) error {
	r := &replacement{path: s.path, kept: corruptName(s.path)}
	n, err := s.buildDatabase(ctx)
	if err == nil {
		err = r.run(0)
	}
	aside := r.kept
	if !exists(aside) {
		aside = s.path
	}
	s.setHealth(func(h *Health) { h.Aside, h.Salvaged = aside, n })
	if err == nil {
		s.log.Error("the database cannot be used: a new one with the readable rows replaces it; "+
			"missing pods are restored from manifests and running containers",
			"database", s.path, "kept", aside, "rows", n, "error", why)
		s.pruneBroken(aside)
		err = s.open(ctx)
	}
	if err != nil {
		return s.openMemory(ctx, errors.Join(why, err))
	}
	return nil
}

// openMemory opens a database in memory and copies all rows of the database on the disk into it. It is used if the disk can be read but not
// written. If the replacement of the database is not complete, the rows come from the new database.
func (s *Store) openMemory(ctx context.Context, why error) error {
	from := s.path
	if next, _ := findNext(s.path); next != "" {
		from = next
	}
	return s.fillMemory(ctx, from, why)
}

func (s *Store) fillMemory(ctx context.Context, from string, why error) error {
	if err := s.openAt(ctx, memoryDSN()); err != nil {
		return errors.Join(why, err)
	}
	n, err := s.fillRows(ctx, from)
	if err != nil {
		s.closeFiles()
		return errors.Join(why, err)
	}
	until := "the agent ends"
	if s.files.full { // see restoreFiles
		until = "there is room"
	}
	s.log.Error("the disk of the database takes no writes: changes are kept in memory",
		"until", until, "database", s.path, "rows", n, "error", why)
	s.setHealth(func(h *Health) {
		h.Volatile = fmt.Sprintf("the disk of %s takes no writes (%v): changes are kept in memory until %s", s.path, why, until)
	})
	return nil
}

// fillRows copies the readable rows of the database at a path, and then the rows of the mirror, to the open database. It returns the number
// of readable rows.
func (s *Store) fillRows(ctx context.Context, from string) (n int, err error) {
	n, err = salvageRows(ctx, from, s.db)
	return n, errors.Join(err, s.mirror.restore(ctx, s.db))
}

// memoryDatabases counts the databases in memory since the start of the process. The number makes their names unique.
var memoryDatabases atomic.Int64

// memoryDSN returns connection strings for a new database in memory, which several connections can share.
func memoryDSN() func(pragmas ...string) string {
	name := fmt.Sprintf("/islet-%d", memoryDatabases.Add(1))
	return func(pragmas ...string) string { return connectionString(name, "memdb", pragmas...) }
}

func (s *Store) closeFiles() error {
	s.writer.statements.close()
	return errors.Join(s.readDB.Close(), s.db.Close())
}

// repairDatabase replaces a broken database with a new one. If the disk has become read-only, the new database is in memory. The log
// contains the error of the failed operation. If repairDatabase returns true, the caller should retry the operation. Only the writer may
// call it.
func (s *Store) repairDatabase(why error) bool {
	still := errors.Is(why, syscall.EROFS) || isFrozen(why) && readOnly(s.path)
	if !isCorrupt(why) && !still || !s.lastRepair.IsZero() && time.Since(s.lastRepair) < repairEvery || s.Health().Volatile != "" {
		return false
	}
	defer func() { s.lastRepair = time.Now() }() // a repair may take longer than repairEvery
	s.dbMu.Lock()
	defer s.dbMu.Unlock()
	s.log.Error("the database is broken or cannot be written, and is created again", "database", s.path, "error", why)
	s.closeFiles()
	ctx := context.Background()
	var err error
	if still {
		err = s.openMemory(ctx, why)
	} else {
		err = s.replace(ctx, why)
	}
	if err != nil {
		return s.startEmpty(errors.Join(why, err))
	}
	s.readMirror(ctx)
	s.signalRepaired()
	return true
}

// startEmpty opens an empty database in memory, as the last resort. It returns false if even this fails. Only the writer may call it, with
// the gate locked.
func (s *Store) startEmpty(why error) bool {
	s.log.Error("the database could not be created again: islet starts with an empty one in memory", "database", s.path, "error", why)
	if err := s.openAt(context.Background(), memoryDSN()); err != nil {
		s.log.Error("no database could be opened", "error", err)
		s.db, s.readDB = closedDatabase(), closedDatabase()
		return false
	}
	if err := s.mirror.restore(context.Background(), s.db); err != nil {
		s.log.Error("the small tables could not be filled again", "error", err)
	}
	s.setHealth(func(h *Health) {
		h.Volatile = fmt.Sprintf("the database %s is broken (%v): all data are kept in memory", s.path, why)
	})
	s.signalRepaired()
	return true
}

// signalRepaired sends a value to the channel of WatchRepairs.
func (s *Store) signalRepaired() {
	select {
	case s.rowsMissing <- struct{}{}:
	default:
	}
}

// closedDatabase returns a database whose operations all fail.
func closedDatabase() *sql.DB {
	db, err := sql.Open("sqlite", "")
	if err == nil {
		db.Close()
	}
	return db
}

// requestRepair makes the writer repair the database after an error of a reader. It returns true if the read should be repeated.
func (s *Store) requestRepair(ctx context.Context, why error) bool {
	if !isCorrupt(why) {
		return false
	}
	done := make(chan bool, 1)
	select {
	case s.repairs <- repair{why, done}:
		return <-done
	case <-ctx.Done():
	case <-s.stop:
	}
	return false
}
