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
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/keyfile"
)

const (
	flushEvery = 5 * time.Second // maximum time until a status is written
	maxReaders = 2               // maximum number of connections for reading
	readerIdle = 10 * time.Second
)

// A Store is an open database. Its methods are safe for concurrent use.
type Store struct {
	path string
	log  *slog.Logger
	seal *seal

	db     *sql.DB                        // the only connection for writing; only the writer uses it
	readDB *sql.DB                        // connections for reading
	dbMu   sync.RWMutex                   // read-locked during use of read; locked during the replacement of db and read
	dsn    func(pragmas ...string) string // connection strings of db and readDB
	driver string                         // the name of the driver of SQLite, which tests replace
	writer writer                         // used only by the writer

	repairs     chan repair   // requests to the writer
	rowsMissing chan struct{} // capacity 1; a value means that rows may be missing after a repair
	lastRepair  time.Time     // time of the last repair; used only by the writer
	files       fileSet       // used only by the writer
	unwritten   unwritten     // used only by the writer
	mirror      mirror        // used only by the writer

	health sync.Mutex // guards now
	now    Health

	writes  chan write    // changes for the writer
	dirty   chan struct{} // capacity 1; a value means that statuses is not empty
	stop    chan struct{}
	done    chan struct{} // closed when the writer has ended
	failing bool          // the writer's last flush has failed
	close   sync.Once
	closed  error

	metaValues metaValues
	pullCache  pullCache
	rewriters  rewriters
	voids      atomic.Int64 // number of calls of VoidObjects

	mu       sync.Mutex
	statuses map[types.UID][]byte // the newest statuses that are not written yet
}

// Open opens or creates the database at the given path and migrates it to this version of islet. It replaces a broken file with a new one
// with all readable rows, and keeps the broken file together with its -wal and -shm under another name; see Rebuilt. It uses the database
// of a newer islet if the migrations permit this. Otherwise it returns an error and leaves the files unchanged. A full disk is no error. If
// the disk is read-only, or has no room for a new database, the database is opened in memory; see Health. Open is OpenSealed for a key that
// is not sealed to a TPM.
func Open(ctx context.Context, path string, log *slog.Logger) (*Store, error) {
	return OpenSealed(ctx, path, keyfile.Place{}, log)
}

// OpenSealed opens the database like Open. If the key file is sealed to a TPM, OpenSealed first opens the key with the TPM and the policies
// of key. If the key does not open, OpenSealed returns an error and leaves all files unchanged.
func OpenSealed(ctx context.Context, path string, key keyfile.Place, log *slog.Logger) (*Store, error) {
	s := newStore(path, key, log)
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(path string, key keyfile.Place, log *slog.Logger) *Store {
	key.Dir = filepath.Dir(path)
	return &Store{
		repairs: make(chan repair), rowsMissing: make(chan struct{}, 1),
		path: path, log: log, seal: &seal{place: key},
		writes: make(chan write), dirty: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		statuses: map[types.UID][]byte{},
	}
}

// start opens the files and starts the writer.
func (s *Store) start(ctx context.Context) error {
	if err := s.seal.openSealed(); err != nil {
		return err
	}
	err := s.continueReplacement()
	if err != nil {
		err = s.openMemory(ctx, err)
	} else {
		err = s.open(ctx)
	}
	switch {
	case err == nil && readOnly(s.path):
		s.closeFiles()
		err = s.openMemory(ctx, syscall.EROFS)
	case err != nil && isFrozen(err):
		err = s.openMemory(ctx, err)
		if errors.Is(err, fs.ErrPermission) { // the file belongs to another user
			err = s.replace(ctx, err)
		}
	case err != nil && isBroken(err):
		err = s.replace(ctx, err)
	case err != nil && isFull(err) && !exists(s.path): // an existing database must be migrated: the former version can still use it
		s.files.full = true
		err = s.openMemory(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("open the database %s: %w", s.path, s.explainError(err))
	}
	s.readMirror(ctx) // after an error, which the checks have not found, updateMirror reads the tables again
	go s.runWriter()
	return nil
}

// A Health describes problems of the database. The zero value means that there are no problems.
type Health struct {
	Aside    string // present path of a broken database; empty if no database was broken
	Salvaged int    // number of rows that were copied from the broken database
	Volatile string // reason why all data is only in memory; empty if the data is on the disk
}

// Rebuilt reports whether a new database has replaced a broken one. It returns the current path of the broken database.
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

// WatchRepairs returns a channel that receives a value after the database was replaced during use. The receiver should then store all pods
// again and call RewriteRows, because some rows may be missing. Rows that are not missing cause no write.
func (s *Store) WatchRepairs() <-chan struct{} { return s.rowsMissing }

// Close writes pending statuses and closes the database.
func (s *Store) Close() error {
	s.close.Do(func() {
		close(s.stop)
		<-s.done
		s.dbMu.Lock()
		defer s.dbMu.Unlock()
		if rerr := s.closeFiles(); rerr != nil {
			s.closed = fmt.Errorf("close the database %s: %w", s.path, rerr)
		}
	})
	return s.closed
}

// CloseToMove closes the database like Close. It returns an error unless the database file itself has all rows, so that it can be moved
// without its -wal file. SQLite reports no error if it cannot write the rows of the -wal to the database at the end.
func (s *Store) CloseToMove() error {
	err := s.Close()
	if h := s.Health(); err == nil && h.Volatile != "" {
		err = errors.New(h.Volatile)
	}
	return errors.Join(err, checkWhole(s.path))
}

// checkWhole returns an error if a closed database has rows in its -wal file.
func checkWhole(path string) error {
	if exists(path + "-wal") {
		return fmt.Errorf("%s: not all rows are in the file", path)
	}
	return nil
}

// connectionStrings returns a function that makes connection strings for the database at a path. The caches are small, because the
// database of a node is small. The file is locked exclusively, because a second agent must not use the same database. With the exclusive
// lock, SQLite keeps the index of the -wal on the heap and creates no -shm file, which would fail on a full disk.
func connectionStrings(path string) func(pragmas ...string) string {
	return func(pragmas ...string) string { return connectionString(path, "unix-excl", pragmas...) }
}

func connectionString(path, vfs string, pragmas ...string) string {
	q := url.Values{"vfs": {vfs}, "_pragma": append([]string{"busy_timeout(2000)", "cache_size(-256)", "mmap_size(0)"}, pragmas...)}
	return (&url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: q.Encode()}).String()
}
