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
	flushEvery = 5 * time.Second // how old a status in memory gets at most
	readers    = 2               // connections for reading, at most
	readerIdle = 10 * time.Second
)

// A Store is an open database. All methods may be called concurrently.
type Store struct {
	path string
	log  *slog.Logger
	seal *seal

	db   *sql.DB // one connection, which only the writer uses
	read *sql.DB
	gate sync.RWMutex // held for reading while read is used, for writing while both are replaced

	repairs chan repair   // to the writer
	again   chan struct{} // capacity 1: rows may be missing since a repair
	mended  time.Time     // the last repair; the writer's
	files   fileSet       // the writer's

	health sync.Mutex // guards what follows
	now    Health

	writes  chan write    // to the writer
	dirty   chan struct{} // capacity 1: there is a status to write
	stop    chan struct{}
	done    chan struct{} // the writer has ended
	failing bool          // the writer's last flush failed
	close   sync.Once
	closed  error

	riding riders

	mu       sync.Mutex
	statuses map[types.UID][]byte // newest, not yet written; nil: gone
}

// Open opens the database at path, or makes it, and migrates it to this islet's
// version. A file that is broken is set aside, together with its -wal and -shm, and
// a new one made with all rows that can be read: see Rebuilt. One of a newer islet is used
// as it is if that islet's migrations left a way back, and else an error, never set aside. A disk without room for a
// write is no obstacle to opening, nor is one that takes no writes: see Health.
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
	case err != nil && frozen(err):
		if err = s.openMemory(ctx, err); errors.Is(err, fs.ErrPermission) { // a file that is not ours
			err = s.replace(ctx, err)
		}
	case err != nil && broken(err):
		err = s.replace(ctx, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, s.explain(err))
	}
	go s.write()
	return s, nil
}

// A Health says what is wrong with the database; the zero value: nothing is.
type Health struct {
	Aside    string // where the broken predecessor is; empty: there is none
	Salvaged int    // rows that were read from it
	Volatile string // why all is kept in memory only; empty: it is on the disk
}

// Rebuilt says whether a new database had to be made because the one that was there is
// broken, and where that one is now.
func (s *Store) Rebuilt() (aside string, yes bool) {
	h := s.Health()
	return h.Aside, h.Aside != ""
}

// Health gives how the database is.
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

// Repaired says that the database was made anew while it was in use: who has rows in
// memory writes them again, for some may be missing. Unchanged ones are not written.
func (s *Store) Repaired() <-chan struct{} { return s.again }

// Close writes what is pending and closes the database.
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

// dsn gives a connection string. Caches are small, as the whole database of a node
// is. The file is this process's alone, so that the index of the -wal lives on the
// heap: a -shm file could not be made on a full disk, and two agents on one database
// would be worse than one that does not start.
func dsn(path string) func(pragmas ...string) string {
	return func(pragmas ...string) string { return connection(path, "unix-excl", pragmas...) }
}

func connection(path, vfs string, pragmas ...string) string {
	q := url.Values{"vfs": {vfs}, "_pragma": append([]string{"busy_timeout(2000)", "cache_size(-256)", "mmap_size(0)"}, pragmas...)}
	return (&url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: q.Encode()}).String()
}
