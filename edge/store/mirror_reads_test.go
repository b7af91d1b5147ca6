package store

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stopWriter ends the writer, so that the test may use its connection and its mirror.
func stopWriter(t *testing.T, s *Store) {
	t.Helper()
	must(t, s.Close())
	must(t, s.open(t.Context()))
	t.Cleanup(func() { s.closeFiles() })
}

// TestFailedReadOfRows checks that a table is stale after its changed rows could not be read, and that the next read of the table is
// complete.
func TestFailedReadOfRows(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	for i, owner := range []string{"one", "two", "three"} {
		must(t, s.AddLease(t.Context(), address(i), owner))
	}
	stopWriter(t, s)
	m, shape := &s.mirror, mirroredShapes("leases")[0]
	_, err := s.db.Exec("DELETE FROM leases WHERE owner <> 'three'")
	must(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.update(ended, s.db, shape, []rowSet{textRows("owner", "one")}); !errors.Is(err, context.Canceled) || !m.stale["leases"] {
		t.Error("after the read of rows has failed:", err, m.stale)
	}
	must(t, m.update(t.Context(), s.db, shape, []rowSet{textRows("owner", "two")}))
	if rows := m.tables["leases"]; len(m.stale) > 0 || len(rows) != 1 || rows[0][1] != "three" {
		t.Error(m.stale, rows)
	}
	if err := m.read(ended, s.db, "leases"); !errors.Is(err, context.Canceled) || !m.stale["leases"] {
		t.Error("after the read of a table has failed:", err, m.stale)
	}
	must(t, m.read(t.Context(), s.db))
	if len(m.stale) > 0 {
		t.Error(m.stale)
	}
}

// TestLargeTables checks that the mirror drops a table that is too large, and reads it again when it is not.
func TestLargeTables(t *testing.T) {
	s, ctx := open(t, filepath.Join(t.TempDir(), "islet.db")), t.Context()
	m := &s.mirror
	must(t, s.MarkFilled(ctx))
	must(t, s.AddLease(ctx, address(1), "one"))
	m.sizes["leases"] = maxMirrored + 1 // as after many updates
	must(t, s.AddLease(ctx, address(2), "two"))
	if size := m.sizes["leases"]; size > maxMirrored || len(m.tables["leases"]) != 2 {
		t.Error(size, m.tables["leases"])
	}
	must(t, s.SetMeta(ctx, "key", strings.Repeat("x", maxMirrored+1)))
	if rows := m.tables["meta"]; rows != nil || m.stale["meta"] {
		t.Errorf("%d rows of a table that is too large, stale %v", len(rows), m.stale)
	}
	must(t, s.SetMeta(ctx, "key", "small"))
	compareMirror(t, s, filepath.Join(t.TempDir(), "copy.db"))
}

// TestStaleTablesAreReadAgain checks that a write of another table also reads the tables that could not be read before, at most once per
// repairEvery.
func TestStaleTablesAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	synctest.Test(t, func(t *testing.T) {
		s, ctx := open(t, path), t.Context()
		defer s.Close()
		m := &s.mirror
		must(t, s.AddLease(ctx, address(1), "one"))
		for _, value := range []string{"1", "2"} {
			m.tables["leases"], m.stale["leases"] = nil, true
			must(t, s.SetMeta(ctx, "key", value))
			if len(m.stale) > 0 || len(m.tables["leases"]) != 1 {
				t.Error(m.stale, m.tables["leases"])
			}
			m.stale["leases"] = true
			must(t, s.SetMeta(ctx, "key", value+", soon"))
			if !m.stale["leases"] {
				t.Error("a table was read again too soon")
			}
			time.Sleep(repairEvery)
		}
	})
}

// TestUnreadableTables checks that one unreadable table does not keep the others from the mirror, that the error of a damaged table is the
// one that counts, and that the read of the mirror during a repair begins no other repair, for which it would wait forever.
func TestUnreadableTables(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	must(t, s.AddLease(t.Context(), address(1), "one"))
	must(t, s.MarkFilled(t.Context()))
	stopWriter(t, s)
	first := mirroredShapes()[0].table
	_, err := s.db.Exec("DROP TABLE " + first)
	must(t, err)
	m := mirror{}
	err = m.read(t.Context(), s.db)
	if stale := slices.Collect(maps.Keys(m.stale)); err == nil || isCorrupt(err) || !slices.Equal(stale, []string{first}) {
		t.Error(err, stale)
	}
	if len(m.tables["leases"]) != 1 || m.tables["meta"] == nil {
		t.Error(m.tables)
	}
	destroyPages(t, s)
	if err := s.mirror.read(t.Context(), s.db); !isCorrupt(err) {
		t.Error(err)
	}
	s.readMirror(t.Context())
	if h := s.Health(); h.Aside != "" {
		t.Errorf("%+v", h)
	}
}

// A slowLog needs longer than repairEvery for each error.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }

func (slowLog) Handle(context.Context, slog.Record) error {
	time.Sleep(2 * repairEvery)
	return nil
}

// TestSlowRepair checks that the interval between repairs begins with the end of a repair. Otherwise a reader that has found the damage
// before a slow repair would make the writer replace the new database.
func TestSlowRepair(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), path, slog.New(slowLog{slog.DiscardHandler}))
		must(t, err)
		defer s.Close()
		must(t, s.AddLease(t.Context(), address(1), "one"))
		destroyPages(t, s)
		before := time.Now()
		must(t, s.AddLease(t.Context(), address(2), "two")) // finds the damage
		if time.Since(before) < repairEvery || s.Health().Aside == "" {
			t.Fatalf("no slow repair: %s, %+v", time.Since(before), s.Health())
		}
		if d := time.Since(s.lastRepair); d >= repairEvery {
			t.Errorf("the next repair could begin at once: the last one was %s ago", d)
		}
	})
}
