package store

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// applicationID ("islt") identifies the file as a database of islet. prepare checks it, and file(1) shows it.
const applicationID = 0x69736c74

// migrations contains the migrations, which are numbered from 1 without gaps. A released migration never changes. The previous version of
// islet must be able to use the database of the next version, so that an update can be reverted. A migration therefore only adds tables and
// indexes, which the previous version ignores. A migration that cannot follow this rule must raise readBy. The update can then not be
// reverted.
//
//go:embed migrations/*.sql
var migrations embed.FS

// readBy is a schema version. A version of islet that knows at least this schema version can use the database. It is stored in the table
// meta, where an older islet reads it.
const (
	readBy    = 11
	readByKey = "schema.readBy"
)

// keepBroken is the number of broken databases that are kept for inspection.
const keepBroken = 3

// errContent means that a file is not an intact database of islet.
var errContent = errors.New("not an intact database of islet")

var suffixes = []string{"", "-wal", "-shm"}

// open opens the database file. It sets the connections for writing and for reading.
func (s *Store) open(ctx context.Context) error {
	_, err := os.Lstat(s.path)
	isNew := errors.Is(err, fs.ErrNotExist) // any other error may be one of the disk
	err = ensurePrivate(s.path)
	if err == nil {
		err = s.openAt(ctx, connectionStrings(s.path))
	}
	if err != nil {
		if isNew {
			removeFiles(s.path) // as on a full disk
		}
		return err
	}
	s.files.wal = nil
	s.files.db, _ = os.Lstat(s.path) // nil if the file was already removed; the file is then not checked
	return nil
}

// openAt opens the connections for writing and for reading, with the given connection strings.
func (s *Store) openAt(ctx context.Context, dsn func(pragmas ...string) string) (err error) {
	driver := cmp.Or(s.driver, "sqlite")
	s.db, err = sql.Open(driver, dsn("synchronous("+syncedMode+")", "wal_autocheckpoint(2000)", "journal_size_limit(2097152)"))
	if err != nil {
		return err
	}
	s.db.SetMaxOpenConns(1)
	s.writer = writer{synchronous: syncedMode}
	s.pullCache.clear()
	if err := prepareDatabase(ctx, s.db); err != nil {
		s.db.Close()
		return err
	}
	s.readDB, err = sql.Open(driver, dsn("query_only(1)"))
	if err != nil {
		s.db.Close()
		return err
	}
	s.readDB.SetMaxOpenConns(maxReaders)
	s.readDB.SetMaxIdleConns(1)
	s.readDB.SetConnMaxIdleTime(readerIdle)
	s.dsn = dsn
	return nil
}

// ensurePrivate checks that the files of the database are regular files, and makes them accessible only to islet. SQLite creates the -wal
// and -shm files with the same mode as the database.
func ensurePrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		return f.Close()
	}
	for _, suffix := range suffixes {
		fi, err := os.Lstat(path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !fi.Mode().IsRegular():
			return fmt.Errorf("%w: %s is %s", errContent, path+suffix, fi.Mode())
		case fi.Mode().Perm() != 0o600:
			if err := os.Chmod(path+suffix, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareDatabase checks the database and migrates it to the schema of this islet.
func prepareDatabase(ctx context.Context, db *sql.DB) error {
	// The first write to a new database fixes its page size. Enabling the WAL is a write, so the page size is set before.
	if _, err := db.ExecContext(ctx, "PRAGMA page_size = "+strconv.Itoa(pageSize)+"; PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	var version, app int
	var check string
	for pragma, to := range map[string]any{"user_version": &version, "application_id": &app, "quick_check(1)": &check} {
		if err := db.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(to); err != nil {
			return err
		}
	}
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	switch {
	case check != "ok":
		return fmt.Errorf("%w: %s", errContent, check)
	case version > 0 && app != applicationID:
		return fmt.Errorf("%w: it belongs to another program (application_id %#x)", errContent, app)
	}
	latest := len(files)
	if version <= latest {
		if err := migrateAll(ctx, db, files, version); err != nil {
			return err
		}
	}
	newer, err := checkSchema(ctx, db, files)
	if version <= latest || err != nil && !errors.Is(err, errContent) {
		return err
	}
	return checkNewer(ctx, db, version, latest, newer && err == nil, err)
}

// checkNewer checks a database whose version number is higher than this islet knows. It returns an error if this islet cannot use the
// database. The database of a newer islet has additional tables. If there are no additional tables, the version number is damaged.
func checkNewer(ctx context.Context, db *sql.DB, version, latest int, more bool, schema error) error {
	var text string
	if err := db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", readByKey).Scan(&text); err == nil {
		if by, err := strconv.Atoi(text); err == nil && by <= latest && more {
			return nil
		}
	}
	if schema == nil && !more {
		return fmt.Errorf("%w: its version is %d, but it has the tables of version %d", errContent, version, latest)
	}
	return fmt.Errorf("%w: its version is %d, but this islet knows only versions up to %d. Run the newer islet; nothing was changed",
		errNewer, version, latest)
}

func migrateAll(ctx context.Context, db *sql.DB, files []string, version int) error {
	for i := version; i < len(files); i++ {
		script, err := migrations.ReadFile(files[i])
		if err != nil {
			return err
		}
		if i == 0 {
			script = fmt.Appendf(script, "; INSERT INTO meta (key, value) VALUES ('%s', 'new')", emptyKey)
		}
		if i == len(files)-1 {
			script = fmt.Appendf(script, "; INSERT OR REPLACE INTO meta (key, value) VALUES ('%s', '%d')", readByKey, readBy)
		}
		if err := migrate(ctx, db, i+1, string(script)); err != nil {
			return fmt.Errorf("migrate to version %d: %w", i+1, err)
		}
	}
	return nil
}

// checkSchema detects a damaged table definition, because the quick check of SQLite does not read the definitions. It returns true if the
// database has tables that this islet does not know, as in the database of a newer islet.
func checkSchema(ctx context.Context, db *sql.DB, files []string) (more bool, err error) {
	model, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return false, err
	}
	defer model.Close()
	model.SetMaxOpenConns(1)
	if err := migrateAll(ctx, model, files, 0); err != nil {
		return false, err
	}
	want, err := readSchema(ctx, model)
	if err != nil {
		return false, err
	}
	has, err := readSchema(ctx, db)
	if err != nil {
		return false, err
	}
	for name, text := range want {
		if has[name] != text {
			return false, fmt.Errorf("%w: it does not have the tables of this version", errContent)
		}
	}
	return len(has) > len(want), nil
}

// readSchema returns the definitions of all tables and indexes by their names.
func readSchema(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT name, coalesce(sql, ''), type IN ('trigger', 'view') FROM sqlite_schema")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var name, text string
		var active bool // no version of islet has those
		if err := rows.Scan(&name, &text, &active); err != nil {
			return nil, err
		}
		if active {
			return nil, fmt.Errorf("%w: it has a trigger or view", errContent)
		}
		out[name] = text
	}
	return out, rows.Err()
}

func migrate(ctx context.Context, db *sql.DB, version int, script string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	script += fmt.Sprintf("; PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, version)
	if _, err := tx.ExecContext(ctx, script); err != nil {
		return err
	}
	return tx.Commit()
}

// prune removes old broken databases and keeps the last keepBroken. Otherwise a board that damages its database repeatedly would fill its
// disk. The names contain the time, which may be wrong. The caller therefore passes the newest broken database, which is never removed.
func prune(path, newest string) error {
	old := slices.DeleteFunc(listFiles(path+corruptSuffix), func(name string) bool {
		return name == newest || strings.HasSuffix(name, "-wal") || strings.HasSuffix(name, "-shm")
	})
	for _, name := range old[:max(0, len(old)-keepBroken+1)] {
		for _, suffix := range suffixes {
			if err := os.RemoveAll(name + suffix); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Store) pruneBroken(newest string) {
	if err := prune(s.path, newest); err != nil {
		s.log.Warn("old broken databases cannot be removed", "database", s.path, "error", err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
