package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/keyfile"
)

// A statementCounter is a driver that counts the statements of all its connections. It passes them to the driver of SQLite.
type statementCounter struct {
	driver.Driver

	mu        sync.Mutex
	executed  int // statements, with the beginnings and ends of transactions
	compiled  int // statements that SQLite has compiled
	opened    int // connections
	committed int // transactions
	rows      int // rows that were read
}

// register returns the name of the driver.
func (c *statementCounter) register(t *testing.T) string {
	t.Helper()
	db, err := sql.Open("sqlite", "")
	must(t, err)
	defer db.Close()
	c.Driver = db.Driver()
	name := fmt.Sprintf("counter %p", c)
	sql.Register(name, c)
	return name
}

func (c *statementCounter) add(executed, compiled, opened, committed int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.executed, c.compiled, c.opened, c.committed = c.executed+executed, c.compiled+compiled, c.opened+opened, c.committed+committed
}

// take returns the counts since its last call.
func (c *statementCounter) take() (text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text = fmt.Sprintf("%d statements, %d compiled, %d rows read, %d transactions, %d connections",
		c.executed, c.compiled, c.rows, c.committed, c.opened)
	c.executed, c.compiled, c.opened, c.committed, c.rows = 0, 0, 0, 0, 0
	return text
}

func (c *statementCounter) Open(dsn string) (driver.Conn, error) {
	conn, err := c.Driver.Open(dsn)
	if err != nil {
		return nil, err
	}
	c.add(0, 0, 1, 0)
	return countedConn{conn, c}, nil
}

type countedConn struct {
	driver.Conn
	c *statementCounter
}

func (k countedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	k.c.add(0, 1, 0, 0)
	s, err := k.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	return countedStmt{s, k.c}, err
}

func (k countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	k.c.add(1, 1, 0, 0)
	return k.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (k countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	k.c.add(1, 1, 0, 0)
	rows, err := k.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	return countedRows{rows, k.c}, err
}

func (k countedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	k.c.add(1, 1, 0, 0)
	tx, err := k.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	return countedTx{tx, k.c}, err
}

type countedTx struct {
	driver.Tx
	c *statementCounter
}

func (k countedTx) Commit() error {
	k.c.add(1, 1, 0, 1)
	return k.Tx.Commit()
}

type countedStmt struct {
	driver.Stmt
	c *statementCounter
}

func (k countedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	k.c.add(1, 0, 0, 0)
	return k.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (k countedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	k.c.add(1, 0, 0, 0)
	rows, err := k.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	return countedRows{rows, k.c}, err
}

type countedRows struct {
	driver.Rows
	c *statementCounter
}

func (k countedRows) Next(dest []driver.Value) error {
	err := k.Rows.Next(dest)
	if err == nil {
		k.c.mu.Lock()
		defer k.c.mu.Unlock()
		k.c.rows++
	}
	return err
}

// TestStatementsOfAPod counts the statements and transactions of the store for the start and the end of a pod on a node that has run a pod
// before. The numbers do not depend on the number of pods. They determine the CPU time of the store for each pod: lower numbers are
// welcome, higher ones need a reason.
func TestStatementsOfAPod(t *testing.T) {
	for _, others := range []int{0, 40} {
		counter := &statementCounter{}
		name := counter.register(t)
		path := filepath.Join(t.TempDir(), "islet.db")
		synctest.Test(t, func(t *testing.T) { countStatements(t, counter, path, name, others) })
	}
}

func countStatements(t *testing.T, counter *statementCounter, path, name string, others int) {
	s, err := openDriver(t.Context(), path, name)
	must(t, err)
	defer s.Close()
	ctx := t.Context()
	changes := 0
	s.AddMetaValue("history", func() string { // on a node of a cluster, it changes with each pod
		changes++
		return fmt.Sprint(changes)
	})
	must(t, s.MarkFilled(ctx))
	steps := []struct {
		name string
		want string
		do   func(uid types.UID, i int)
	}{
		{"start", "13 statements, 9 compiled, 2 rows read, 3 transactions, 0 connections", func(uid types.UID, i int) {
			must(t, s.UpdatePods(ctx, []Pod{pod(string(uid), string(uid))}, nil))
			_, err := s.PullsOf(ctx, "sha256:1")
			must(t, err)
			must(t, s.AddLease(ctx, address(i), string(uid)))
			must(t, s.PutStatus(uid, &v1.PodStatus{Phase: v1.PodRunning}))
			time.Sleep(flushEvery)
			synctest.Wait()
		}},
		{"token", "5 statements, 4 compiled, 1 rows read, 1 transactions, 0 connections", func(uid types.UID, _ int) {
			must(t, s.PutToken(ctx, Token{TokenKey{uid, "", 3607}, "ey", time.Unix(100, 0), time.Unix(3707, 0)}))
		}},
		{"end", "25 statements, 12 compiled, 2 rows read, 3 transactions, 0 connections", func(uid types.UID, _ int) {
			ending := pod(string(uid), string(uid))
			ending.Deleting = true
			must(t, s.UpdatePods(ctx, []Pod{ending}, nil))
			must(t, s.ReleaseLeases(ctx, string(uid)))
			must(t, s.PutStatus(uid, &v1.PodStatus{Phase: v1.PodFailed}))
			must(t, s.UpdatePods(ctx, nil, []types.UID{uid}))
			time.Sleep(flushEvery)
			synctest.Wait()
		}},
	}
	for i := range others {
		for _, step := range steps[:2] {
			step.do(types.UID(fmt.Sprint("other", i)), i)
		}
	}
	for life := range 3 {
		for _, step := range steps {
			counter.take()
			step.do(types.UID(fmt.Sprint("uid", life)), others)
			if got := counter.take(); life == 2 && got != step.want {
				t.Errorf("%d other pods, %s: %s, want %s", others, step.name, got, step.want)
			}
		}
	}
}

// openDriver is like Open with another driver of SQLite.
func openDriver(ctx context.Context, path, name string) (*Store, error) {
	s := newStore(path, keyfile.Place{}, slog.New(slog.DiscardHandler))
	s.driver = name
	return s, s.start(ctx)
}

// TestDurableAfterCoalesced checks that a durable write waits for the disk after statuses were written without a wait, and that statuses
// are still written without a wait after that.
func TestDurableAfterCoalesced(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	stopWriter(t, s)
	mode := func(class string) (mode int64) {
		t.Helper()
		must(t, s.transact(class, write{change: func(tx *transaction) error {
			value, _, err := tx.query("PRAGMA synchronous")
			mode = value.(int64)
			delete(tx.statements.byText, "PRAGMA synchronous") // a prepared statement has the value of the time of its preparation
			return err
		}}))
		return mode
	}
	const normal, full = 1, 2
	for range 3 {
		if got := mode(syncedMode); got != full {
			t.Errorf("durable: synchronous is %d", got)
		}
		if got := mode(coalescedMode); got != normal {
			t.Errorf("coalesced: synchronous is %d", got)
		}
	}
}

// TestPullsOfAreCurrent checks that a result of PullsOf that was read before a change does not stay in memory after the change.
func TestPullsOfAreCurrent(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "islet.db"))
	ctx := t.Context()
	for i := range 2 * maxCachedPulls {
		image := fmt.Sprint("sha256:", i)
		_, _, version := s.pullCache.get(image) // a reader begins, and is slow
		must(t, s.PutPull(ctx, Pull{Image: image, Name: "example.com/a"}, ""))
		s.pullCache.put(image, nil, version)
		for range 2 {
			if list, err := s.PullsOf(ctx, image); err != nil || len(list) != 1 {
				t.Fatalf("after PutPull: %v, %v", list, err)
			}
		}
	}
	for i := range 2 * maxCachedPulls { // without a write
		if list, err := s.PullsOf(ctx, fmt.Sprint("sha256:", i)); err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
	}
	if n := len(s.pullCache.pulls); n != maxCachedPulls {
		t.Errorf("the results for %d images stay in memory", n)
	}
	must(t, s.DeletePulls(ctx, []string{"sha256:0"}))
	if list, err := s.PullsOf(ctx, "sha256:0"); err != nil || len(list) != 0 {
		t.Errorf("after DeletePulls: %v, %v", list, err)
	}
}

// TestClassOfAGroup checks that one write that must survive a power cut makes its whole transaction wait for the disk, and which writes of
// addresses do.
func TestClassOfAGroup(t *testing.T) {
	durable, coalesced := write{}, write{coalesced: true}
	for _, tt := range []struct {
		group []write
		want  string
	}{
		{[]write{durable}, syncedMode}, {[]write{coalesced}, coalescedMode}, {[]write{coalesced, coalesced}, coalescedMode},
		{[]write{coalesced, durable}, syncedMode}, {[]write{durable, coalesced}, syncedMode},
	} {
		if got := classOf(tt.group...); got != tt.want {
			t.Errorf("%v: %s", tt.group, got)
		}
	}
	for name, tt := range map[string]struct {
		do   func(*Store) error
		want string
	}{
		"AddLease":      {func(s *Store) error { return s.AddLease(t.Context(), netip.MustParseAddr("10.0.0.1"), "a") }, syncedMode},
		"ReleaseLeases": {func(s *Store) error { return s.ReleaseLeases(t.Context(), "a") }, coalescedMode},
	} {
		s := open(t, filepath.Join(t.TempDir(), "islet.db"))
		must(t, tt.do(s))
		must(t, s.Close())
		if s.writer.synchronous != tt.want {
			t.Errorf("%s: synchronous is %s", name, s.writer.synchronous)
		}
	}
}
