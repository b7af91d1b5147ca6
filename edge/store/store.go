package store

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"sync"
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
	path    string
	log     *slog.Logger
	seal    *seal
	rebuilt string // where the broken predecessor is

	db   *sql.DB // one connection, which only the writer uses
	read *sql.DB

	writes  chan write    // to the writer
	dirty   chan struct{} // capacity 1: there is a status to write
	stop    chan struct{}
	done    chan struct{} // the writer has ended
	failing bool          // the writer's last flush failed
	close   sync.Once
	closed  error

	mu       sync.Mutex
	statuses map[types.UID][]byte // newest, not yet written; nil: gone
}

// Open opens the database at path, or makes it, and migrates it to this islet's
// version. A file that is broken is set aside, together with its -wal and -shm, and
// a new one made: see Rebuilt. A disk without room for a write is no obstacle to
// opening.
func Open(ctx context.Context, path string, log *slog.Logger) (*Store, error) {
	s := &Store{
		path: path, log: log, seal: &seal{path: filepath.Join(filepath.Dir(path), KeyFile)},
		writes: make(chan write), dirty: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		statuses: map[types.UID][]byte{},
	}
	err := s.open(ctx)
	if err != nil && broken(err) {
		if s.rebuilt, err = setAside(path, err, log); err == nil {
			err = s.open(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, s.explain(err))
	}
	go s.write()
	return s, nil
}

// Rebuilt says whether Open had to start from an empty database because the one
// that was there is broken, and where that one is now.
func (s *Store) Rebuilt() (aside string, yes bool) { return s.rebuilt, s.rebuilt != "" }

// Close writes what is pending and closes the database.
func (s *Store) Close() error {
	s.close.Do(func() {
		close(s.stop)
		<-s.done
		rerr := s.read.Close()
		if err := s.db.Close(); err != nil {
			rerr = err
		}
		if rerr != nil {
			s.closed = fmt.Errorf("close the database %s: %w", s.path, rerr)
		}
	})
	return s.closed
}

// dsn gives a connection string. Caches are small, as the whole database of a node
// is. The file is this process's alone, so that the index of the -wal lives on the
// heap: a -shm file could not be made on a full disk, and two agents on one database
// would be worse than one that does not start.
func dsn(path string, pragmas ...string) string {
	q := url.Values{"vfs": {"unix-excl"}, "_pragma": append([]string{"busy_timeout(2000)", "cache_size(-256)", "mmap_size(0)"}, pragmas...)}
	return (&url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: q.Encode()}).String()
}
