package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	flushEvery = 5 * time.Second // maximum age of a status that is not written
	readers    = 2               // maximum number of connections for reading
	readerIdle = 10 * time.Second
)

// A Store is an open database. Its methods are safe for concurrent use.
type Store struct {
	path string
	log  *slog.Logger
	seal *seal

	db   *sql.DB      // one connection, used by the writer only
	read *sql.DB      // for all readers
	gate sync.RWMutex // read-locked while read is used, locked while db and read are replaced

	repairs    chan repair   // to the writer
	again      chan struct{} // capacity 1: rows may be missing after a repair
	lastRepair time.Time     // the last repair; used by the writer
	files      fileSet       // used by the writer

	health sync.Mutex // guards now
	now    Health

	writes  chan write    // to the writer
	dirty   chan struct{} // capacity 1: statuses is not empty
	stop    chan struct{}
	done    chan struct{} // the writer has ended
	failing bool          // the writer's last flush failed
	close   sync.Once
	closed  error

	riders riders

	mu       sync.Mutex
	statuses map[types.UID][]byte // newest ones that are not written
}

// Open opens or creates the database at path and migrates it to this version of islet. A broken
// file is renamed together with its -wal and -shm, and replaced by a new one with all rows that
// can be read: see Rebuilt. The database of a newer islet is used if its migrations allow that,
// and is an error otherwise; it is never renamed. A full disk is no error. If the disk is
// read-only, the database is in memory: see Health.
func Open(ctx context.Context, path string, log *slog.Logger) (*Store, error) {
	s := &Store{
		repairs: make(chan repair), again: make(chan struct{}, 1),
		path: path, log: log, seal: &seal{path: filepath.Join(filepath.Dir(path), KeyFile)},
		writes: make(chan write), dirty: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		statuses: map[types.UID][]byte{},
	}
	err := s.open(ctx)
	switch {
	case err == nil && readOnly(path):
		s.closeFiles()
		err = s.openMemory(ctx, syscall.EROFS)
	case err != nil && isFrozen(err):
		err = s.openMemory(ctx, err)
		if errors.Is(err, fs.ErrPermission) { // the file belongs to another user
			err = s.replace(ctx, err)
		}
	case err != nil && isBroken(err):
		err = s.replace(ctx, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, s.explain(err))
	}
	go s.write()
	return s, nil
}

// A Health describes problems of the database; the zero value: none.
type Health struct {
	Aside    string // path of the broken database that was replaced; empty if there is none
	Salvaged int    // number of rows that were read from it
	Volatile string // why all data are in memory only; empty if they are on the disk
}

// Rebuilt reports whether a broken database was replaced by a new one, and returns the path of
// the broken one.
func (s *Store) Rebuilt() (aside string, yes bool) {
	h := s.Health()
	return h.Aside, h.Aside != ""
}

// Health returns the state of the database.
func (s *Store) Health() Health {
	s.health.Lock()
	defer s.health.Unlock()
	return s.now
}

func (s *Store) setHealth(change func(*Health)) {
	s.health.Lock()
	defer s.health.Unlock()
	change(&s.now)
}

// Repaired returns a channel that receives a value after the database was replaced during use.
// Receivers write all their rows again, since some may be missing; unchanged rows cost nothing.
func (s *Store) Repaired() <-chan struct{} { return s.again }

// Close writes pending statuses and closes the database.
func (s *Store) Close() error {
	s.close.Do(func() {
		close(s.stop)
		<-s.done
		s.gate.Lock()
		defer s.gate.Unlock()
		if rerr := s.closeFiles(); rerr != nil {
			s.closed = fmt.Errorf("close the database %s: %w", s.path, rerr)
		}
	})
	return s.closed
}

// dsn returns connection strings. The caches are small, as a node's whole database is. The file
// is locked exclusively, so the index of the -wal is on the heap: a -shm file could not be
// created on a full disk, and a second agent must not use the same database.
func dsn(path string) func(pragmas ...string) string {
	return func(pragmas ...string) string { return connection(path, "unix-excl", pragmas...) }
}

func connection(path, vfs string, pragmas ...string) string {
	q := url.Values{"vfs": {vfs}, "_pragma": append([]string{"busy_timeout(2000)", "cache_size(-256)", "mmap_size(0)"}, pragmas...)}
	return (&url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: q.Encode()}).String()
}
