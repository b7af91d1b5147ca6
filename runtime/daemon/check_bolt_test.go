package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	bolt "go.etcd.io/bbolt"

	"github.com/islet-edge/islet/internal/readonly"
)

// newDatabase returns a database with nested buckets, small buckets, overflow pages and free pages.
func newDatabase(tb testing.TB, syncFreelist bool, rows int) []byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "test.db")
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: !syncFreelist, NoSync: true})
	if err != nil {
		tb.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, uint64(rows)))
	for round := range 8 {
		err := db.Update(func(tx *bolt.Tx) error {
			top, err := tx.CreateBucketIfNotExists([]byte("v1"))
			if err != nil {
				return err
			}
			for n := range rows {
				b, err := top.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket-%d", n%7))
				if err == nil && n%3 == 0 {
					b, err = b.CreateBucketIfNotExists(fmt.Appendf(nil, "small-%d", n))
				}
				if err != nil {
					return err
				}
				key := fmt.Appendf(nil, "key-%d", random.IntN(rows))
				if round%2 == 1 && n%2 == 0 {
					err = b.Delete(key)
				} else {
					err = b.Put(key, bytes.Repeat([]byte{'x'}, random.IntN(200)))
				}
				if errors.Is(err, bolt.ErrIncompatibleValue) {
					err = nil
				}
				if err != nil {
					return err
				}
			}
			return top.Put([]byte("large"), make([]byte, 20000))
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// boltErrors returns the errors of bbolt's own check. Pages that are neither used nor free are not errors: they are only lost space.
func boltErrors(t *testing.T, path string, b []byte) (errs []error) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return []error{err}
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			if !strings.Contains(err.Error(), "unreachable unfreed") {
				errs = append(errs, err)
			}
		}
		return nil
	})
	return append(errs, err)
}

func check(b []byte) error { return checkPages(bytes.NewReader(b), uint64(len(b))) }

// TestCheckIntact checks databases that bbolt has written.
func TestCheckIntact(t *testing.T) {
	for _, rows := range []int{0, 1, 10, 1000} {
		for _, sync := range []bool{false, true} {
			b := newDatabase(t, sync, rows)
			if err := check(b); err != nil {
				t.Errorf("%d rows, list of free pages %v: %v", rows, sync, err)
			}
			clear(b[:4096]) // a power cut has torn the last commit, or the one before
			if err := check(b); err != nil {
				t.Errorf("%d rows, list of free pages %v, without the first meta page: %v", rows, sync, err)
			}
		}
	}
}

// TestCheckDamaged damages databases in many ways. bbolt must accept each database that the check accepts.
func TestCheckDamaged(t *testing.T) {
	page := os.Getpagesize()
	path := filepath.Join(t.TempDir(), "damaged.db")
	random := rand.New(rand.NewPCG(3, 4))
	for _, sync := range []bool{false, true} {
		whole := newDatabase(t, sync, 100)
		m, err := newestMeta(bytes.NewReader(whole), uint64(len(whole)))
		if err != nil {
			t.Fatal(err)
		}
		found, accepted := 0, 0
		try := func(what string, damage func(b []byte)) {
			b := bytes.Clone(whole)
			damage(b)
			if err := check(b); err != nil {
				if !errors.Is(err, errDamaged) {
					t.Errorf("%s: %v", what, err)
				}
				found++
				return
			}
			accepted++
			for _, err := range boltErrors(t, path, b) {
				if err != nil {
					t.Errorf("%s: the check accepts it, and bbolt does not: %v", what, err)
				}
			}
		}
		for id := 2; id < int(m.pages); id++ {
			at := id * page
			try(fmt.Sprintf("page %d is empty", id), func(b []byte) { clear(b[at:][:page]) })
			try(fmt.Sprintf("page %d is another page", id), func(b []byte) { copy(b[at:][:page], b[(id+1)*page:]) })
			try(fmt.Sprintf("page %d has another kind", id), func(b []byte) { b[at+8] ^= 3 })
			for range 5 {
				n, v := random.IntN(page), byte(1+random.IntN(255))
				try(fmt.Sprintf("byte %d of page %d", n, id), func(b []byte) { b[at+n] ^= v })
				n = random.IntN(256)
				try(fmt.Sprintf("byte %d of page %d", n, id), func(b []byte) { b[at+n] ^= v })
			}
		}
		try("no meta page", func(b []byte) { clear(b[:2*page]) })
		if found < 100 || accepted < 100 {
			t.Errorf("%d were found and %d accepted", found, accepted)
		}
		for n := range len(whole) / page {
			if err := check(whole[:n*page]); n < int(m.pages) && !errors.Is(err, errDamaged) {
				t.Errorf("truncated to %d of %d pages: %v", n, m.pages, err)
			}
		}
	}
}

// A badDisk returns an error for one page, as a disk does for a sector that it cannot read.
type badDisk struct {
	io.ReaderAt
	from, to int64
}

func (d badDisk) ReadAt(b []byte, at int64) (int, error) {
	if at < d.to && at+int64(len(b)) > d.from {
		return 0, unix.EIO
	}
	return d.ReaderAt.ReadAt(b, at)
}

// TestCheckUnreadable checks each page that bbolt reads: if the disk cannot read it, the check fails with the error of the disk, which
// checkLocked takes for damage. Other pages do not matter.
func TestCheckUnreadable(t *testing.T) {
	page := int64(os.Getpagesize())
	b := newDatabase(t, false, 200)
	pages := int64(len(b)) / page
	bad := 0
	for id := range pages {
		err := checkPages(badDisk{bytes.NewReader(b), id * page, (id + 1) * page}, uint64(len(b)))
		if err != nil {
			bad++
			if errors.Is(err, errDamaged) || !errors.Is(err, unix.EIO) {
				t.Errorf("page %d: %v", id, err)
			}
		} else if id < 2 {
			t.Errorf("meta page %d is not read", id)
		}
	}
	if bad < 10 || bad == int(pages) {
		t.Errorf("%d of %d pages are read", bad, pages)
	}
}

// FuzzCheckBolt checks files that are not databases. The check must return, and use each page once.
func FuzzCheckBolt(f *testing.F) {
	whole := newDatabase(f, true, 10)
	f.Add(whole[:4096*12])
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := check(b); err != nil && !errors.Is(err, errDamaged) {
			t.Error(err)
		}
		if len(b) < 4*4096 || len(b) > len(whole) {
			return
		}
		c := bytes.Clone(whole) // the meta pages have checksums, so the fuzzer cannot get beyond them
		copy(c[2*4096:], b[2*4096:])
		if err := check(c); err != nil && !errors.Is(err, errDamaged) {
			t.Error(err)
		}
	})
}

func BenchmarkCheckBolt(b *testing.B) {
	whole := newDatabase(b, false, 5000)
	b.SetBytes(int64(len(whole)))
	b.ReportAllocs()
	for b.Loop() {
		if err := check(whole); err != nil {
			b.Fatal(err)
		}
	}
}

// A faultyReader is a file whose next reads fail.
type faultyReader struct {
	*bytes.Reader
	faults []error
}

func (r *faultyReader) ReadAt(b []byte, pos int64) (int, error) {
	if len(r.faults) > 0 {
		err := r.faults[0]
		r.faults = r.faults[1:]
		if err != nil {
			return 0, err
		}
	}
	return r.Reader.ReadAt(b, pos)
}

// TestFaultsAreRetried checks reads that fail. A fault of the disk that does not occur again does not count, and an error that is not a
// fault of the disk is not damage.
func TestFaultsAreRetried(t *testing.T) {
	b := newDatabase(t, true, 10)
	for name, test := range map[string]struct {
		faults    []error
		want, not error
	}{
		"once":              {[]error{nil, nil, nil, unix.EIO}, nil, nil},
		"at once":           {[]error{unix.EIO}, nil, nil},
		"twice":             {[]error{unix.EIO, nil, unix.EIO}, unix.EIO, nil},
		"out of memory":     {[]error{nil, nil, nil, unix.ENOMEM}, unix.ENOMEM, errDamaged},
		"truncated by then": {[]error{nil, nil, nil, io.EOF}, errDamaged, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := &faultyReader{bytes.NewReader(b), test.faults}
			err := readonly.TryTwice(func() error { return checkPages(f, uint64(len(b))) })
			if !errors.Is(err, test.want) || test.not != nil && errors.Is(err, test.not) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
