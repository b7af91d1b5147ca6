package store

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestCopyTo copies a database while it is written to, and one that is only in memory. The copy opens, and has the rows of one moment.
func TestCopyTo(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), filepath.Join(dir, "islet.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	done := make(chan error)
	if err := s.SetMeta(t.Context(), "n", "0"); err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := range 200 {
			if err := s.SetMeta(t.Context(), "n", fmt.Sprint(i)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := range 5 {
		to := filepath.Join(t.TempDir(), "copy.db")
		if err := s.CopyTo(t.Context(), to); err != nil {
			t.Fatal(i, err)
		}
		if fi, err := os.Stat(to); err != nil || fi.Mode() != 0o600 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
		if _, found, err := ReadMeta(t.Context(), to, "n"); err != nil || !found {
			t.Errorf("the value is not in the copy: %v", err)
		}
		if err := s.CopyTo(t.Context(), to); err == nil {
			t.Error("a file was replaced")
		}
		c, err := Open(t.Context(), to, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if h := c.Health(); h != (Health{}) {
			t.Errorf("the copy: %+v", h)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.dbMu.Lock()
	s.closeFiles()
	if err := s.openMemory(t.Context(), os.ErrPermission); err != nil {
		t.Fatal(err)
	}
	s.dbMu.Unlock()
	to := filepath.Join(dir, "memory.db")
	if err := s.CopyTo(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	if got, _, err := ReadMeta(t.Context(), to, "n"); err != nil || got != "199" {
		t.Errorf("the copy of a database in memory: %q, %v", got, err)
	}
}
