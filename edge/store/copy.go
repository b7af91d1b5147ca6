package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
)

// CopyTo writes a consistent copy of the database to a new file of mode 0600, while the database is in use. Writers do not wait for it.
// The confidential rows of the copy are encrypted with the same key. After an error, there is no file.
func (s *Store) CopyTo(ctx context.Context, to string) error {
	s.dbMu.RLock()
	defer s.dbMu.RUnlock()
	return copyDatabase(ctx, s.dsn(), to)
}

// CopyFileFrom returns a function like CopyTo for a database that no agent has open. It does not migrate the database.
func CopyFileFrom(path string) func(ctx context.Context, to string) error {
	return func(ctx context.Context, to string) error { return copyDatabase(ctx, connectionStrings(path)(), to) }
}

func copyDatabase(ctx context.Context, dsn, to string) error {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = f.Close()
	if err == nil {
		err = vacuumInto(ctx, dsn, to)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("copy the database: %w", err), os.Remove(to))
	}
	return nil
}

func vacuumInto(ctx context.Context, dsn, to string) error {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	file := url.URL{Scheme: "file", Path: to, OmitHost: true, RawQuery: "vfs=unix"} // the database itself may be in memory
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", file.String())
	return err
}

// ReadMeta returns a value that SetMeta stored in the database at a path. No agent has this database open.
func ReadMeta(ctx context.Context, path, key string) (value string, found bool, err error) {
	db, err := sql.Open("sqlite", connectionStrings(path)())
	if err != nil {
		return "", false, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", false, nil
	}
	return value, err == nil, err
}

// ForgetImports forgets which image archives were imported, because the database has moved to a machine without their images.
func (s *Store) ForgetImports(ctx context.Context) error {
	err := s.commit(ctx, func(tx *transaction) error {
		return tx.exec("DELETE FROM imports")
	})
	if err != nil {
		return fmt.Errorf("forget the imports of image archives: %w", err)
	}
	return nil
}

// ForgetArchives deletes the same records as ForgetImports, except those whose key begins with the prefix keep.
func (s *Store) ForgetArchives(ctx context.Context, keep string) error {
	err := s.commit(ctx, func(tx *transaction) error {
		return tx.exec("DELETE FROM imports WHERE substr(digest, 1, ?) <> ?", len(keep), keep)
	})
	if err != nil {
		return fmt.Errorf("forget the imports of image archives: %w", err)
	}
	return nil
}
