package store

import (
	"context"
	"database/sql"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestEmpty checks that a new database counts as empty until Filled is called. Restarts do not change this. A database whose file was
// deleted or truncated is a new database.
func TestEmpty(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "islet.db")
	want := func(empty bool, then func(*Store) error) {
		t.Helper()
		s, err := Open(ctx, path, slog.New(slog.DiscardHandler))
		must(t, err)
		defer s.Close()
		if got, err := s.IsNew(ctx); got != empty || err != nil {
			t.Errorf("empty: %v, %v; want %v", got, err, empty)
		}
		if then != nil {
			must(t, then(s))
		}
	}
	fill := func(s *Store) error { return s.MarkFilled(ctx) }
	want(true, nil)
	want(true, fill)
	want(false, nil)
	for _, suffix := range suffixes {
		os.Remove(path + suffix)
	}
	want(true, fill)
	for _, suffix := range suffixes[1:] {
		os.Remove(path + suffix)
	}
	must(t, os.Truncate(path, 0))
	want(true, fill)
	want(false, nil)
}

// TestEmptyAfterTheFirstTables checks a database whose agent was killed while it created the tables. The database still counts as empty.
func TestEmptyAfterTheFirstTables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	db, err := sql.Open("sqlite", path)
	must(t, err)
	files, err := fs.Glob(migrations, "migrations/*.sql")
	must(t, err)
	must(t, migrateAll(t.Context(), db, files[:1], 0))
	must(t, db.Close())
	s, err := Open(t.Context(), path, slog.New(slog.DiscardHandler))
	must(t, err)
	defer s.Close()
	if empty, err := s.IsNew(t.Context()); !empty || err != nil {
		t.Errorf("empty: %v, %v", empty, err)
	}
}
