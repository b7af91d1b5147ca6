package store

import (
	"context"
	"database/sql"
	"fmt"
)

// AddImport durably records that the image archive with the given digest and file name was imported.
func (s *Store) AddImport(ctx context.Context, digest, name string) error {
	err := s.commit(ctx, func(tx *transaction) error {
		return tx.execOn(textRows("digest", digest), "INSERT OR IGNORE INTO imports (digest, name) VALUES (?, ?)", digest, name)
	})
	if err != nil {
		return fmt.Errorf("record the import of %s: %w", name, err)
	}
	return nil
}

// WasImported reports whether the archive with the given digest was imported.
func (s *Store) WasImported(ctx context.Context, digest string) (bool, error) {
	_, found, err := s.readValue(ctx, "SELECT name FROM imports WHERE digest = ?", digest)
	if err != nil {
		return false, fmt.Errorf("look up the import of %s: %w", digest, err)
	}
	return found, nil
}

// readValue reads one string. It returns false if there is no row.
func (s *Store) readValue(ctx context.Context, query string, args ...any) (value string, found bool, err error) {
	err = s.query(ctx, func() { found = false }, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(&value)
	}, query, args...)
	return value, found && err == nil, err
}
