package link

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An unsetBoard is a machine whose clock may be wrong. The bubble begins in the year 2000, so without an offset the clock counts as not
// set.
type unsetBoard struct {
	*testing.T
	meta   *memory
	offset atomic.Int64 // of the machine's clock
	synced atomic.Bool
	config Config
}

func newUnsetBoard(t *testing.T) *unsetBoard {
	return &unsetBoard{T: t, meta: &memory{values: map[string]string{}}}
}

func (b *unsetBoard) set(at time.Time) { b.offset.Store(int64(time.Until(at))) }

func (b *unsetBoard) machine() time.Time { return time.Now().Add(time.Duration(b.offset.Load())) }

// stored returns the number of writes, and the stored signed time.
func (b *unsetBoard) stored() (writes int, signed string) {
	b.meta.mu.Lock()
	defer b.meta.mu.Unlock()
	return b.meta.writes, b.meta.values[signedKey]
}

// want checks the time of the node.
func (b *unsetBoard) want(l *Link, what string, want time.Time) {
	b.Helper()
	if got := l.Now(); got.Sub(want).Abs() > time.Second {
		b.Errorf("%s: it is %s, not %s: %+v", what, got, want, l.Times())
	}
}

// boot starts the node. The returned function stops it.
func (b *unsetBoard) boot() (*Link, func()) {
	b.Helper()
	c := b.config
	c.NodeName, c.CertDir, c.Meta, c.Clock, c.Log = "n", b.TempDir(), b.meta, b.machine, slog.New(slog.DiscardHandler)
	c.IsClockSynced = b.synced.Load
	l, err := New(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- l.clock.run(ctx) }()
	return l, func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// TestSignedTime checks that the time of a signature is a lower bound of the time on a node without an API server, also after a reboot with
// a clock that is not set again, and that islet clock reset removes it. A node with an API server does not use it.
func TestSignedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newUnsetBoard(t)
		signed := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)

		l, stop := b.boot()
		time.Sleep(3 * time.Hour)
		if writes, _ := b.stored(); writes != 0 {
			t.Error("something was stored before anything was signed")
		}
		l.RecordSigned(t.Context(), signed)
		b.want(l, "a clock that is not set", signed)
		l.RecordSigned(t.Context(), signed.Add(-time.Hour))
		b.want(l, "an earlier signature", signed)
		if writes, signed := b.stored(); writes != 1 || signed != "2026-12-01T08:00:00Z" {
			t.Errorf("%d writes, %s", writes, signed)
		}
		time.Sleep(10*time.Hour + time.Minute)
		stop()
		b.set(time.Unix(0, 0))
		l, stop = b.boot()
		b.want(l, "after a power cut", signed.Add(10*time.Hour+time.Minute))
		b.set(signed.AddDate(0, 0, 30)) // somebody sets the clock
		b.want(l, "the clock is right", signed.AddDate(0, 0, 30))
		before, _ := b.stored()
		time.Sleep(5 * time.Hour)
		stop()
		if writes, _ := b.stored(); writes != before {
			t.Error("the signed time is stored, although the machine's clock is later")
		}

		b.set(signed.AddDate(0, 0, -6)) // a board that shows the time of its last shutdown
		l, stop = b.boot()
		b.want(l, "the clock is behind", signed.Add(10*time.Hour+time.Minute))
		if err := l.ResetClock(t.Context()); err != nil {
			t.Error(err)
		}
		b.want(l, "reset", b.machine())
		stop()
		l, stop = b.boot()
		b.want(l, "reset before a reboot", b.machine())
		stop()

		b.offset.Store(0)
		l, stop = b.boot()
		l.RecordSigned(t.Context(), signed)
		stop()
		b.config.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
		l, stop = b.boot()
		b.want(l, "a stored signed time, and an API server", b.machine())
		l.RecordSigned(t.Context(), signed)
		b.want(l, "an API server proves the time", b.machine())
		if err := l.ResetClock(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		b.config.Kubeconfig = ""
		l, stop = b.boot()
		b.want(l, "reset on a node with an API server, which then left its cluster", b.machine())
		stop()
	})
}

// TestSignedAhead checks a node without an API server whose signer's clock is ahead, over 200 days and reboots. While the machine's clock
// is set, the node is at most 7 days ahead of it. While the kernel's clock is synchronized, the node uses the machine's clock. If the node
// is behind the signer by seconds, nothing is stored.
func TestSignedAhead(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		ahead, used time.Duration // the signed time, and the node's time, ahead of the machine's clock
		unset       bool          // the clock is set only after the signed time was recorded
		synced      bool
	}{
		{ahead: 20 * time.Second},
		{ahead: 20 * time.Second, unset: true},
		{ahead: time.Hour, used: time.Hour},
		{ahead: 6 * day, used: 6 * day},
		{ahead: 6 * day, used: 6 * day, unset: true},
		{ahead: 6 * day, synced: true},
		{ahead: 6 * day, synced: true, unset: true},
		{ahead: 8 * day},
		{ahead: 8 * day, unset: true},
		{ahead: 170 * day},
		{ahead: 170 * day, unset: true},
		{ahead: 170 * day, unset: true, synced: true},
		{ahead: 3650 * day, unset: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newUnsetBoard(t)
				now := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
				if !c.unset {
					b.set(now)
					b.synced.Store(c.synced)
				}
				l, stop := b.boot()
				l.RecordSigned(t.Context(), now.Add(c.ahead))
				if c.unset {
					b.want(l, "the clock is not set", now.Add(c.ahead))
					b.set(now)
					b.synced.Store(c.synced)
				}
				before, _ := b.stored()
				for range 2 {
					for at := range 200 {
						b.want(l, fmt.Sprint("day ", at), b.machine().Add(c.used))
						time.Sleep(day)
					}
					stop()
					l, stop = b.boot()
				}
				b.want(l, "after a reboot", b.machine().Add(c.used))
				if writes, _ := b.stored(); (writes > before) != (c.used > 0) {
					t.Errorf("%d writes, before %d", writes, before)
				}
				b.synced.Store(true)
				b.want(l, "a time service has set the clock", b.machine())
				stop()
			})
		})
	}
}

// A busyMemory is a Meta that calls the function during, once, before it stores a value.
type busyMemory struct {
	memory
	during func()
}

func (m *busyMemory) SetMeta(ctx context.Context, key, value string) error {
	if during := m.during; during != nil {
		m.during = nil
		during()
	}
	return m.memory.SetMeta(ctx, key, value)
}

// TestStoredLast checks that a value that is being written when the clock is reset, or when a later time is recorded, does not replace the
// newer value in the database.
func TestStoredLast(t *testing.T) {
	signed := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		change func(l *Link) error
		want   string
	}{
		"reset": {func(l *Link) error { return l.ResetClock(t.Context()) }, ""},
		"later": {func(l *Link) error { l.RecordSigned(t.Context(), signed.AddDate(1, 0, 0)); return nil }, "2027-12-01T08:00:00Z"},
	} {
		m := &busyMemory{memory: memory{values: map[string]string{}}}
		l, err := New(t.Context(), Config{NodeName: "n", CertDir: t.TempDir(), Meta: m, Log: slog.New(slog.DiscardHandler),
			Clock: func() time.Time { return time.Unix(1000, 0) }})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		m.during = func() {
			go func() { done <- c.change(l) }()
			for range 10_000 { // the other write is finished meanwhile, or waits
				runtime.Gosched()
			}
		}
		l.RecordSigned(t.Context(), signed)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, _, _ := m.Meta(t.Context(), signedKey); got != c.want {
			t.Errorf("%s: stored %q, want %q", name, got, c.want)
		}
	}
}
