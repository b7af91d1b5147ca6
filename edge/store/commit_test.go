package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// commits returns the number of transactions in the -wal file. Only the last frame of a transaction has the size of the database in its
// header. See https://sqlite.org/fileformat2.html#walformat.
func commits(t testing.TB, s *Store) (n int) {
	t.Helper()
	data, err := os.ReadFile(s.path + "-wal")
	must(t, err)
	const header, frame = 32, 24
	if len(data) < header {
		return 0
	}
	page := int(binary.BigEndian.Uint32(data[8:]))
	for at := header; at+frame+page <= len(data); at += frame + page {
		if binary.BigEndian.Uint32(data[at+4:]) != 0 {
			n++
		}
	}
	return n
}

// files returns the contents of the database file and the -wal file. A test compares two results to detect writes, because every commit
// changes the -wal file. It does not use /proc/self/io, which also counts the eight bytes that Go's runtime writes to wake its poller.
func files(t testing.TB, s *Store) []byte {
	t.Helper()
	db, err := os.ReadFile(s.path)
	must(t, err)
	wal, err := os.ReadFile(s.path + "-wal")
	must(t, err)
	return append(db, wal...)
}

func address(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)}) }

// hold blocks the writer until release is called.
func hold(t testing.TB, s *Store) (release func()) {
	entered, wait, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		done <- s.commit(context.Background(), func(*transaction) error {
			if first {
				close(entered)
				<-wait
			}
			first = false
			return nil
		})
	}()
	<-entered
	return func() {
		close(wait)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestConcurrentWritesShareATransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		defer s.Close()
		must(t, s.AddLease(t.Context(), address(1000), "other"))
		before := commits(t, s)
		release := hold(t, s)
		results := make(chan error)
		const n = 50
		for i := range n {
			go func() { results <- s.AddLease(t.Context(), address(i), "me") }()
		}
		synctest.Wait()
		release()
		for range n {
			must(t, <-results)
		}
		if got := commits(t, s) - before; got != 1 {
			t.Errorf("%d transactions for %d concurrent writes", got, n)
		}

		// A write that fails does not affect the other writes.
		release = hold(t, s)
		for i := range n {
			go func() {
				if i == 7 {
					results <- s.commit(t.Context(), func(tx *transaction) error {
						if err := tx.exec("INSERT INTO meta VALUES ('half', 'done')"); err != nil {
							return err
						}
						return fs.ErrInvalid
					})
					return
				}
				results <- s.AddLease(t.Context(), address(100+i), "me")
			}()
		}
		synctest.Wait()
		release()
		failed := 0
		for range n {
			if err := <-results; errors.Is(err, fs.ErrInvalid) {
				failed++
			} else {
				must(t, err)
			}
		}
		leases, err := s.Leases(t.Context())
		if _, found, _ := s.Meta(t.Context(), "half"); err != nil || failed != 1 || found || len(leases) != 2*n {
			t.Error(err, failed, found, len(leases))
		}
	})
}

func TestUnchangedRowsAreNotWritten(t *testing.T) {
	ctx := t.Context()
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	list := func() {
		t.Helper()
		for i := range 3 {
			p := typical(fmt.Sprint("uid-", i))
			must(t, s.UpdatePods(ctx, []Pod{p}, nil))
			must(t, s.AddLease(ctx, address(i), "me"))
			must(t, s.Reject(ctx, p.Pod.UID, Admission{Reason: "OutOfcpu", Message: "x"}))
			must(t, s.PutStatus(p.Pod.UID, &v1.PodStatus{Phase: v1.PodRunning}))
			must(t, s.AddImport(ctx, "sha256:1", "a.tar"))
			must(t, s.SetMeta(ctx, "key", "value"))
			must(t, s.PutObject(ctx, Object{ObjectKey: ObjectKey{"ConfigMap", "default", "a"}, Version: "1", Data: []byte("data")}))
		}
		must(t, s.RemoveObjects(ctx, ObjectKey{"ConfigMap", "default", "none"}))
		if !s.flush() {
			t.Error("flush")
		}
		must(t, s.ReleaseLeases(ctx, "nobody"))
		must(t, s.UpdatePods(ctx, nil, []types.UID{"none"}))
	}
	list()
	before := files(t, s)
	for range 10 {
		list()
	}
	if !bytes.Equal(files(t, s), before) {
		t.Error("the files of the store were written to change nothing")
	}
	must(t, s.SetMeta(ctx, "key", "other"))
	if bytes.Equal(files(t, s), before) {
		t.Error("this check would not have seen a write")
	}
}

// TestIdleStoreWritesNothing checks that the store of an idle node writes nothing for a day.
func TestIdleStoreWritesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		defer s.Close()
		must(t, s.UpdatePods(t.Context(), []Pod{typical("a")}, nil))
		must(t, s.PutStatus("a", &v1.PodStatus{Phase: v1.PodRunning}))
		time.Sleep(2 * flushEvery)
		before := files(t, s)
		time.Sleep(24 * time.Hour)
		if !bytes.Equal(files(t, s), before) {
			t.Error("the files of the store were written in an idle day")
		}
	})
}

func TestStatusesAreCoalesced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "islet.db")
	synctest.Test(t, func(t *testing.T) {
		s := open(t, path)
		ctx := t.Context()
		must(t, s.UpdatePods(ctx, []Pod{typical("a"), typical("b")}, nil))
		before := commits(t, s)
		for i := range 100 {
			must(t, s.PutStatus("a", &v1.PodStatus{Message: fmt.Sprint(i)}))
			time.Sleep(flushEvery / 10)
		}
		if got := commits(t, s) - before; got > 11 || got < 9 {
			t.Errorf("100 statuses in ten times %s made %d transactions", flushEvery, got)
		}
		must(t, s.PutStatus("a", &v1.PodStatus{Message: "last"}))
		must(t, s.PutStatus("b", &v1.PodStatus{Message: "of a pod that goes"}))
		if list, err := s.Statuses(ctx); err != nil || list["a"].Message != "last" || len(list) != 2 {
			t.Error("pending statuses are not returned:", list, err)
		}
		must(t, s.UpdatePods(ctx, nil, []types.UID{"b"}))
		must(t, s.PutStatus("b", &v1.PodStatus{Message: "too late"}))
		s = reopen(t, s)
		if list, err := s.Statuses(ctx); err != nil || list["a"].Message != "last" || len(list) != 1 {
			t.Error("after a restart:", list, err)
		}
		must(t, s.Close())
	})
}

func TestClosedStore(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	must(t, s.Close())
	must(t, s.Close())
	if err := s.SetMeta(t.Context(), "a", "b"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := s.Pods(t.Context()); err == nil {
		t.Error("a closed store gives rows")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s = open(t, s.path)
	defer hold(t, s)()
	if err := s.SetMeta(ctx, "a", "b"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestEndedContextWritesNothing checks that the writer does not serve a caller whose context has already ended, although it is idle.
func TestEndedContextWritesNothing(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	must(t, s.UpdatePods(t.Context(), []Pod{pod("a", "web")}, nil))
	before := mirroredRows(t, s.db)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, do := range writes(ctx, s) {
		if err := do(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := mirroredRows(t, s.db); !slices.Equal(after, before) {
		t.Errorf("before %q, after %q", before, after)
	}
}

// TestReadersDoNotWaitForTheWriter checks that a reader does not wait while the writer waits for the disk.
func TestReadersDoNotWaitForTheWriter(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	must(t, s.SetMeta(t.Context(), "a", "b"))
	release := hold(t, s)
	defer release()
	if v, _, err := s.Meta(t.Context(), "a"); err != nil || v != "b" {
		t.Error(v, err)
	}
}

// TestRowOrderIsNotTheClocks checks that a jump of the clock to 1970 and back does not change the order of the pods. Rows contain no times,
// and Open does not read the clock.
func TestRowOrderIsNotTheClocks(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	a, b := typical("b"), typical("a")
	a.Seq, b.Seq = 1, 2
	must(t, s.UpdatePods(t.Context(), []Pod{b, a}, nil))
	must(t, os.Chtimes(s.path, time.Unix(0, 0), time.Unix(0, 0)))
	s = reopen(t, s)
	if pods, err := s.Pods(t.Context()); err != nil || len(pods) != 2 || pods[0].Pod.UID != "b" {
		t.Error(pods, err)
	}
}
