package store

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store/pages"
	"github.com/islet-edge/islet/internal/keyring"
)

// furnished creates a database with rows in all tables. It removes some of the rows, and returns the contents of the database file and the
// -wal file. Some of the last changes are only in the -wal file.
func furnished(t testing.TB) (db, wal []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "islet.db")
	s := open(t, path)
	ctx := t.Context()
	for i := range 40 {
		p := typical(fmt.Sprintf("%032d", i))
		p.Seq = int64(i)
		must(t, s.UpdatePods(ctx, []Pod{p}, nil))
		must(t, s.AddLease(ctx, netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), fmt.Sprint("sandbox-", i)))
		must(t, s.PutStatus(p.Pod.UID, &v1.PodStatus{Phase: v1.PodRunning, Message: strings.Repeat("m", i*20)}))
		must(t, s.PutObject(ctx, Object{ObjectKey: ObjectKey{"Secret", "default", fmt.Sprint("s", i)}, Version: "7",
			Data: bytes.Repeat([]byte("hush"), i*i)}))
		must(t, s.UpdateLocals(ctx, []Local{localRow("file", "ConfigMap", fmt.Sprint("m", i), strings.Repeat("d", i*40))}, nil))
		must(t, s.PutToken(ctx, Token{TokenKey: TokenKey{UID: p.Pod.UID, Seconds: 3600}, Token: "ey", Issued: time.Unix(1, 0),
			Expires: time.Unix(1<<33, 0)}))
		must(t, s.PutCertificate(ctx, Certificate{CertificateKey{p.Pod.UID, "creds", i}, bytes.Repeat([]byte("c"), i*10)}))
		must(t, s.PutPull(ctx, Pull{fmt.Sprint("sha256:", i), "registry.example/app",
			PullSource{keyring.Secret, "default", "pull", "uid", bytes.Repeat([]byte("h"), 32)}}, ""))
		must(t, s.SetMeta(ctx, fmt.Sprint("key", i), "value"))
		must(t, s.AddImport(ctx, fmt.Sprint("sha256:", i), "name"))
		must(t, s.UpdateEvents(ctx, []Event{{Event: &v1.Event{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("e", i)},
			Message: strings.Repeat("e", i*30)}, Seq: int64(i), Told: int32(i % 2)}}, nil))
		must(t, s.PutVolume(ctx, Volume{VolumeKey{fmt.Sprint("volume", i), string(p.Pod.UID), "/path"}, []byte("{}")}))
		if i%3 == 0 {
			must(t, s.Reject(ctx, p.Pod.UID, Admission{Reason: "OutOfcpu", Message: "no", Grace: time.Second}))
			must(t, s.Allocate(ctx, map[types.UID]Allocation{p.Pod.UID: {2, &v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}}))
		}
		if i == 30 { // moves a part of the changes to the database file
			s = reopen(t, s)
		}
	}
	var gone []types.UID
	for i := range 12 {
		gone = append(gone, types.UID(fmt.Sprintf("%032d", i*3+1)))
	}
	must(t, s.UpdatePods(ctx, nil, gone))
	db, err := os.ReadFile(path)
	must(t, err)
	wal, err = os.ReadFile(path + "-wal")
	must(t, err)
	must(t, s.Close())
	return db, wal
}

// rowsOf returns all rows of all tables as text.
func rowsOf(t testing.TB, db *sql.DB) map[string]bool {
	t.Helper()
	list := map[string]bool{}
	for _, s := range listShapes() {
		rows, err := db.Query("SELECT " + s.columns + " FROM " + s.table)
		must(t, err)
		for rows.Next() {
			values := make([]any, len(s.types))
			into := make([]any, len(values))
			for i := range values {
				into[i] = &values[i]
			}
			must(t, rows.Scan(into...))
			list[fmt.Sprintf("%s %q", s.table, values)] = true
		}
		must(t, rows.Err())
		rows.Close()
	}
	return list
}

// readBySQLite returns the rows that SQLite reads from the files.
func readBySQLite(t testing.TB, db, wal []byte) map[string]bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copy.db")
	must(t, os.WriteFile(path, db, 0o600))
	must(t, os.WriteFile(path+"-wal", wal, 0o600))
	c, err := sql.Open("sqlite", path)
	must(t, err)
	defer c.Close()
	return rowsOf(t, c)
}

// readByPages returns the rows that the salvage reads from the files.
func readByPages(db, wal []byte) map[string]bool {
	list := map[string]bool{}
	for row := range pages.Open(db, wal, pageSize).Rows() {
		for _, s := range listShapes() {
			if s.matchesRow(row.Values) {
				list[fmt.Sprintf("%s %q", s.table, row.Values)] = true
				break
			}
		}
	}
	return list
}

func without(a, b map[string]bool) (only []string) {
	for row := range a {
		if !b[row] {
			only = append(only, row[:min(len(row), 80)])
		}
	}
	slices.Sort(only)
	return only
}

// checkpointed returns the database file after all changes of the -wal file were copied to it.
func checkpointed(t testing.TB, db, wal []byte) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "whole.db")
	must(t, os.WriteFile(path, db, 0o600))
	must(t, os.WriteFile(path+"-wal", wal, 0o600))
	execute(t, path, "PRAGMA wal_checkpoint(TRUNCATE)")
	whole, err := os.ReadFile(path)
	must(t, err)
	return whole
}

// TestPagesAgreeWithSQLite checks that the salvage finds the same rows as SQLite in intact files.
func TestPagesAgreeWithSQLite(t *testing.T) {
	db, wal := furnished(t)
	if len(wal) < 20*pageSize {
		t.Fatal("the -wal file is too small")
	}
	want := readBySQLite(t, db, wal)
	for name, got := range map[string]map[string]bool{
		"with its -wal": readByPages(db, wal),
		"checkpointed":  readByPages(checkpointed(t, db, wal), nil),
		"a torn commit": readByPages(db, append(slices.Clone(wal), wal[walHead:walHead+3000]...)),
	} {
		if a, b := without(want, got), without(got, want); len(a)+len(b) > 0 {
			t.Errorf("%s: missing %q, too many %q", name, a, b)
		}
	}
	if len(want) < 200 {
		t.Errorf("only %d rows", len(want))
	}
}

const walHead = 32

// sparse returns 5, or 1 with ISLET_TEST_LONG. To be shorter, tests divide their number of pages and of random seeds by it.
func sparse() int {
	if os.Getenv("ISLET_TEST_LONG") != "" {
		return 1
	}
	return 5
}

// TestRowsOnIntactPagesSurvive checks that damage to a page loses only the rows that the page stores. The test also damages several pages
// at once, including pages that refer to others. Without ISLET_TEST_LONG it damages only every fifth page.
func TestRowsOnIntactPagesSurvive(t *testing.T) {
	db, wal := furnished(t)
	db = checkpointed(t, db, wal)
	list := readByPages(db, nil)
	n := len(db) / pageSize
	if free := binary.BigEndian.Uint32(db[36:]); free == 0 {
		t.Error("no page is free, so deleted rows are not tested")
	}
	costs := make([]map[string]bool, n)
	for p := 0; p < n; p += sparse() {
		broken := slices.Clone(db)
		clear(broken[p*pageSize : (p+1)*pageSize])
		rest := readByPages(broken, nil)
		if more := without(rest, list); len(more) > 0 {
			t.Errorf("without page %d there are rows that were removed before: %q", p+1, more)
		}
		costs[p] = maps.Clone(list)
		for row := range rest {
			delete(costs[p], row)
		}
		if len(costs[p]) > 45 {
			t.Errorf("page %d costs %d rows", p+1, len(costs[p]))
		}
	}
	for seed := range uint64(100 / sparse()) {
		r := rand.New(rand.NewPCG(seed, 3))
		broken, may := slices.Clone(db), map[string]bool{}
		for range 1 + r.IntN(n/3) {
			p := r.IntN(n) / sparse() * sparse()
			if p == 0 && r.IntN(4) > 0 {
				continue
			}
			maps.Copy(may, costs[p])
			page := broken[p*pageSize : (p+1)*pageSize]
			if r.IntN(2) == 0 {
				clear(page)
				continue
			}
			for range 1 + r.IntN(20) {
				page[r.IntN(len(page))] ^= 1 << r.IntN(8)
			}
		}
		rest := readByPages(broken, nil)
		for row := range list {
			if !rest[row] && !may[row] {
				t.Errorf("seed %d: lost %.80s, which is on no broken page", seed, row)
			}
		}
	}
}

// TestBrokenFreeList checks that no row is lost if the header contains a wrong usable size, or if the free list contains a page with rows.
func TestBrokenFreeList(t *testing.T) {
	db, wal := furnished(t)
	db = checkpointed(t, db, wal)
	list := readByPages(db, nil)
	reserved := slices.Clone(db)
	reserved[20] = 200
	if lost := without(list, readByPages(reserved, nil)); len(lost) > 0 {
		t.Errorf("with a wrong header %d rows are lost", len(lost))
	}
	trunk := int(binary.BigEndian.Uint32(db[32:]))
	for _, head := range []byte{db[0], 0} { // with and without a valid header, which refers to the free list
		for n := 2; n <= len(db)/pageSize; n += sparse() {
			broken := slices.Clone(db)
			broken[0] = head
			binary.BigEndian.PutUint32(broken[(trunk-1)*pageSize+8:], uint32(n))
			if lost := without(list, readByPages(broken, nil)); len(lost) > 0 {
				t.Errorf("page %d on the free list: %d rows are lost", n, len(lost))
			}
		}
	}
}

// TestSalvage checks that the store keeps the readable rows of a damaged file. It detects the damage when it opens the file, or later while
// the file is open.
func TestSalvage(t *testing.T) {
	db, wal := furnished(t)
	db = checkpointed(t, db, wal)
	root := pageOf(t, db, "pods")
	at := filepath.Join(t.TempDir(), "islet.db")
	broken := slices.Clone(db)
	clear(broken[(root-1)*pageSize : root*pageSize])

	t.Run("at the start", func(t *testing.T) {
		must(t, os.WriteFile(at, broken, 0o600))
		s := open(t, at)
		pods, err := s.Pods(t.Context())
		if h := s.Health(); err != nil || len(pods) < 20 || h.Salvaged < 200 || h.Aside == "" || h.Volatile != "" {
			t.Errorf("%d pods, %+v, %v", len(pods), h, err)
		}
		leases, err := s.Leases(t.Context())
		if err != nil || len(leases) != 40 {
			t.Errorf("%d leases, %v", len(leases), err)
		}
		s = reopen(t, s)
		if again, err := s.Pods(t.Context()); err != nil || len(again) != len(pods) {
			t.Errorf("after a restart %d pods, %v", len(again), err)
		}
		works(t, s)
	})
	for _, way := range []string{"reading", "writing"} {
		t.Run("while "+way, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "islet.db")
			must(t, os.WriteFile(path, db, 0o600))
			s := open(t, path)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(t, err)
			_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, pageSize), int64(root-1)*pageSize)
			must(t, err)
			must(t, f.Close())
			fresh := open1(t, s) // the page caches no longer contain the page
			if way == "writing" {
				must(t, s.UpdatePods(t.Context(), []Pod{pod("z", "z")}, nil))
			}
			pods, err := s.Pods(t.Context())
			if h := s.Health(); err != nil || len(pods) < 20 || h.Salvaged < 200 || h.Aside == "" {
				t.Errorf("%d pods, %+v, %v", len(pods), h, err)
			}
			select {
			case <-s.WatchRepairs():
			default:
				t.Error("Repaired has no value")
			}
			works(t, s)
			_ = fresh
		})
	}
}

// open1 empties the page caches of both connections of a store.
func open1(t testing.TB, s *Store) error {
	t.Helper()
	_, err := s.readDB.Exec("PRAGMA shrink_memory")
	must(t, err)
	_, err = s.db.Exec("PRAGMA shrink_memory")
	return err
}

// pageOf returns the root page of a table.
func pageOf(t testing.TB, db []byte, table string) (root int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "root.db")
	must(t, os.WriteFile(path, db, 0o600))
	c, err := sql.Open("sqlite", path)
	must(t, err)
	defer c.Close()
	must(t, c.QueryRow("SELECT rootpage FROM sqlite_schema WHERE name = ?", table).Scan(&root))
	return root
}

// TestNotCorrupt checks that EIO, a read-only disk and a missing directory do not count as damage of the file. The store does not replace
// its file because of such an error.
func TestNotCorrupt(t *testing.T) {
	for name, err := range map[string]error{"EIO": syscall.EIO, "read-only": syscall.EROFS} {
		if isBroken(err) || !isFrozen(err) {
			t.Errorf("%s: broken %v, frozen %v", name, isBroken(err), isFrozen(err))
		}
	}
	path := filepath.Join(t.TempDir(), "no", "such", "folder", "islet.db")
	db, err := sql.Open("sqlite", path)
	must(t, err)
	defer db.Close()
	if err := db.Ping(); err == nil || isBroken(err) || !isFrozen(err) {
		t.Errorf("%v: broken %v, frozen %v", err, isBroken(err), isFrozen(err))
	}
}

// FuzzPages checks that the page reader neither panics nor loops for any content of the files.
func FuzzPages(f *testing.F) {
	db, wal := furnished(f)
	f.Add(db[:20*pageSize], wal[:8*pageSize])
	f.Add([]byte("SQLite format 3\x00"), []byte{})
	f.Fuzz(func(t *testing.T, db, wal []byte) {
		n := 0
		for range pages.Open(db, wal, pageSize).Rows() {
			n++
			if n > len(db)+len(wal) {
				t.Fatal("the reader returned more rows than the file has bytes")
			}
		}
	})
}
