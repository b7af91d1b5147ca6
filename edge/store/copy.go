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
	return func(ctx context.Context, to string) error {
		if _, err := os.Lstat(path); err != nil { // SQLite would make an empty database
			return fmt.Errorf("copy the database: %w", err)
		}
		return copyDatabase(ctx, connectionStrings(path)(), to)
	}
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
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", fileURL(to))
	return err
}

// fileURL returns the URL of a file on the disk for VACUUM INTO, which would write to the memory if the database itself is in memory.
func fileURL(path string) string {
	return (&url.URL{Scheme: "file", Path: path, OmitHost: true, RawQuery: "vfs=unix"}).String()
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

// ReadPulls returns the images that the node with the database at a path has pulled, and its pulls that have begun, without their
// credentials. TakePulls stores them in the database of another node. No agent has this database open.
func ReadPulls(ctx context.Context, path string) ([]Pull, error) {
	db, err := sql.Open("sqlite", connectionStrings(path)())
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT DISTINCT image, iif(image = '', name, ''), iif(image = '', uid, '') FROM pulls")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []Pull
	for rows.Next() {
		var p Pull
		if err := rows.Scan(&p.Image, &p.Name, &p.Source.UID); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, rows.Err()
}

// TakePulls adds the pulls of ReadPulls. A pod needs a credential for such an image, because the images have come with the machine, and the
// Secrets have not.
func (s *Store) TakePulls(ctx context.Context, pulls []Pull) error {
	if len(pulls) == 0 {
		return nil
	}
	err := s.commit(ctx, func(tx *transaction) error {
		for _, p := range pulls {
			err := tx.exec(`INSERT OR IGNORE INTO pulls (image, name, namespace, secret, uid, hash) VALUES (?, ?, '', '', ?, x'')`,
				p.Image, p.Name, string(p.Source.UID))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take the records of pulls: %w", err)
	}
	return nil
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
