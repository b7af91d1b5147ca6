package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/keyfile"
	"github.com/islet-edge/islet/internal/disktest"
)

func TestFullDisk(t *testing.T) {
	d := disktest.New(t)
	ctx := t.Context()
	path := filepath.Join(d.Dir, "islet.db")
	s := open(t, path)
	acknowledged, first := 0, types.UID(fmt.Sprintf("%032d", 0))
	write := func() error {
		p := typical(fmt.Sprintf("%032d", acknowledged))
		p.Seq = int64(acknowledged)
		err := s.UpdatePods(ctx, []Pod{p}, nil)
		if err == nil {
			acknowledged++
		}
		return err
	}
	intact := func(when string) {
		t.Helper()
		pods, err := s.Pods(ctx)
		if err != nil || len(pods) != acknowledged {
			t.Fatalf("%s: %d of %d pods are there: %v", when, len(pods), acknowledged, err)
		}
	}
	must(t, write())
	for round := range 5 {
		d.Fill()
		var err error
		for err == nil {
			err = write()
		}
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "no space left on the disk") {
			t.Fatal("the message does not name the disk:", err)
		}
		intact("full")
		status := &v1.PodStatus{Message: strings.Repeat(fmt.Sprint(round), 32<<10)}
		must(t, s.PutStatus(first, status))
		s.flush() // the -wal file may have free space

		// In two rounds, the store is opened again while the disk is full.
		switch round {
		case 1:
			s = reopen(t, s)
		case 2: // the store is not closed, so the -wal file is kept
			left := map[string][]byte{}
			for _, suffix := range suffixes[:2] {
				left[suffix], err = os.ReadFile(path + suffix)
				must(t, err)
			}
			must(t, s.Close())
			must(t, os.RemoveAll(filepath.Join(d.Dir, "fill")))
			for suffix, data := range left {
				must(t, os.WriteFile(path+suffix, data, 0o600))
			}
			d.Fill()
			s = open(t, path)
		}
		if _, yes := s.Rebuilt(); yes {
			t.Fatal("a full disk counted as a damaged file")
		}
		intact("opened while full")
		if err := write(); err != nil && !errors.Is(err, ErrFull) {
			t.Error(err)
		}

		d.Free()
		must(t, write())
		must(t, write())
		intact("with room again")
		must(t, s.PutStatus(first, status))
		s = reopen(t, s)
		intact("opened with room")
		if got, err := s.Statuses(ctx); err != nil || !equality.Semantic.DeepEqual(got[first], status) {
			t.Error("a status was not written although the disk has free space:", err)
		}
	}
}

// TestNewOnFullDisk opens a database that does not exist on a full disk, as after its deletion. The rows are in memory until the disk has
// room.
func TestNewOnFullDisk(t *testing.T) {
	d := disktest.New(t)
	ctx := t.Context()
	for _, c := range []struct {
		when   string
		free   func(s *Store) // frees space, and returns when the store must have created the file
		closed bool
	}{
		{"before a write", func(s *Store) {
			d.Free()
			must(t, s.UpdatePods(ctx, []Pod{pod("b", "b")}, nil))
		}, false},
		{"before the end", func(s *Store) {
			must(t, s.UpdatePods(ctx, []Pod{pod("b", "b")}, nil))
			if h := s.Health(); h.Volatile == "" {
				t.Error("the rows are on a full disk")
			}
			d.Free()
			must(t, s.Close())
		}, true},
	} {
		t.Run(c.when, func(t *testing.T) {
			path := filepath.Join(d.Dir, c.when, "islet.db")
			must(t, os.Mkdir(filepath.Dir(path), 0o700))
			d.Fill()
			s := open(t, path)
			if isNew, err := s.IsNew(ctx); err != nil || !isNew || !strings.HasSuffix(s.Health().Volatile, "until there is room") || exists(path) {
				t.Errorf("%v, %v, %+v, the file exists: %v", isNew, err, s.Health(), exists(path))
			}
			c.free(s)
			if h := s.Health(); h != (Health{}) {
				t.Errorf("with room: %+v", h)
			}
			if !c.closed { // as after kill -9
				made, err := os.Stat(path)
				must(t, err)
				must(t, s.commit(ctx, func(*transaction) error { s.files.lastAttempt = time.Time{}; return nil }))
				if now, err := os.Stat(path); err != nil || !os.SameFile(now, made) {
					t.Errorf("the files were made again: %v", err)
				}
				copied := filepath.Join(t.TempDir(), "islet.db")
				must(t, s.CopyTo(ctx, copied))
				s = open(t, copied)
			} else {
				s = open(t, path)
			}
			pods, err := s.Pods(ctx)
			if isNew, newErr := s.IsNew(ctx); err != nil || newErr != nil || !isNew || len(pods) != 1 || s.Health() != (Health{}) {
				t.Errorf("%d pods, new: %v, %v, %v, %+v", len(pods), isNew, err, newErr, s.Health())
			}
		})
	}
}

// TestMigrateOnFullDisk opens a database of an earlier version on a full disk. It stays as it is, so that the earlier version can use it.
func TestMigrateOnFullDisk(t *testing.T) {
	d := disktest.New(t)
	path := filepath.Join(d.Dir, "islet.db")
	script, err := os.ReadFile("testdata/v9.sql")
	must(t, err)
	execute(t, path, string(script))
	must(t, os.WriteFile(filepath.Join(d.Dir, KeyFile), []byte(strings.Repeat("k", keyfile.Size)), 0o600))
	before, err := os.ReadFile(path)
	must(t, err)
	d.Fill()
	if s, err := Open(t.Context(), path, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrFull) {
		t.Errorf("%v, %+v", err, s.Health())
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the database has changed: %v", err)
	}
	d.Free()
	s := open(t, path)
	if h := s.Health(); h != (Health{}) || exists(path+replacedSuffix) {
		t.Errorf("%+v", h)
	}
	sealedRowsOfOldDatabase(t, s)
}

// TestCloseToMove closes a database whose rows cannot be written to its file, because the disk is full or read-only. This is an error,
// because the file would lack rows without its -wal file, or without the memory of the process.
func TestCloseToMove(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(d *disktest.Disk, s *Store)
		whole bool
	}{
		"room": {func(*disktest.Disk, *Store) {}, true},
		"full": {func(d *disktest.Disk, _ *Store) { d.Fill() }, false},
		"rows in memory": {func(_ *disktest.Disk, s *Store) {
			done := make(chan bool, 1)
			s.repairs <- repair{syscall.EROFS, done}
			if !<-done {
				t.Fatal("not repaired")
			}
		}, false},
	} {
		d := disktest.New(t)
		path := filepath.Join(d.Dir, "islet.db")
		s := open(t, path)
		for n := range 20 {
			must(t, s.UpdatePods(t.Context(), []Pod{typical(fmt.Sprintf("%032d", n))}, nil))
		}
		c.spoil(d, s)
		if err := s.CloseToMove(); (err == nil) != c.whole {
			t.Errorf("%s: %v", name, err)
		}
		if c.whole {
			moved := filepath.Join(t.TempDir(), "islet.db")
			data, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(moved, data, 0o600))
			if pods, err := open(t, moved).Pods(t.Context()); err != nil || len(pods) != 20 {
				t.Errorf("%d pods, %v", len(pods), err)
			}
		}
	}
}
