package link

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// An unsetBoard is a machine whose clock may be wrong. The time of the bubble begins in the year 2000, so that a clock that shows it is not
// set.
type unsetBoard struct {
	*testing.T
	meta   *memory
	offset atomic.Int64 // of the machine's clock
	config Config
}

func (b *unsetBoard) machine() time.Time { return time.Now().Add(time.Duration(b.offset.Load())) }

// stored returns the number of writes, and the stored signed time.
func (b *unsetBoard) stored() (writes int, signed string) {
	b.meta.mu.Lock()
	defer b.meta.mu.Unlock()
	return b.meta.writes, b.meta.values[signedKey]
}

// boot starts the node. The returned function stops it.
func (b *unsetBoard) boot() (*Link, func()) {
	b.Helper()
	c := b.config
	c.NodeName, c.CertDir, c.Meta, c.Clock, c.Log = "n", b.TempDir(), b.meta, b.machine, slog.New(slog.DiscardHandler)
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
// a clock that is not set again, and that islet clock reset removes it. A node with an API server does not use it. It is not used either,
// now or later, if the machine's clock is set and much earlier, because then the signer's clock may be wrong.
func TestSignedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &unsetBoard{T: t, meta: &memory{values: map[string]string{}}}
		signed := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
		want := func(l *Link, what string, want time.Time) {
			t.Helper()
			if got := l.Now(); got.Sub(want).Abs() > time.Second {
				t.Errorf("%s: it is %s, not %s: %+v", what, got, want, l.Times())
			}
		}
		set := func(at time.Time) { b.offset.Store(int64(time.Until(at))) }

		l, stop := b.boot()
		time.Sleep(3 * time.Hour)
		if writes, _ := b.stored(); writes != 0 {
			t.Error("something was stored before anything was signed")
		}
		l.RecordSigned(t.Context(), signed, time.Hour)
		want(l, "a clock that is not set", signed)
		l.RecordSigned(t.Context(), signed.Add(-time.Hour), MaxSignedAhead)
		want(l, "an earlier signature", signed)
		if writes, signed := b.stored(); writes != 1 || signed != "2026-12-01T08:00:00Z" {
			t.Errorf("%d writes, %s", writes, signed)
		}
		time.Sleep(10*time.Hour + time.Minute)
		stop()
		set(time.Unix(0, 0))
		l, stop = b.boot()
		want(l, "after a power cut", signed.Add(10*time.Hour+time.Minute))
		set(signed.AddDate(0, 0, 30)) // somebody sets the clock
		want(l, "the clock is right", signed.AddDate(0, 0, 30))
		before, _ := b.stored()
		time.Sleep(5 * time.Hour)
		stop()
		if writes, _ := b.stored(); writes != before {
			t.Error("the signed time is stored, although the machine's clock is later")
		}

		set(signed.AddDate(0, 0, -170)) // a board that shows the time of its last shutdown
		l, stop = b.boot()
		want(l, "the clock is behind", signed.Add(10*time.Hour+time.Minute))
		if err := l.ResetClock(t.Context()); err != nil {
			t.Error(err)
		}
		want(l, "reset", b.machine())
		l.RecordSigned(t.Context(), signed, time.Hour)
		want(l, "an index of the future", b.machine())
		l.RecordSigned(t.Context(), signed, MaxSignedAhead)
		want(l, "after a reset", signed)
		stop()
		l, stop = b.boot()
		if err := l.ResetClock(t.Context()); err != nil {
			t.Error(err)
		}
		stop()
		l, stop = b.boot()
		want(l, "reset before a reboot", b.machine())

		wrong := signed.AddDate(10, 0, 0)
		l.RecordSigned(t.Context(), wrong, 20*year)
		want(l, "a wrong signer, and a clock that is set", b.machine())
		b.offset.Store(0)
		l.RecordSigned(t.Context(), wrong, 20*year)
		want(l, "a wrong signer, and a clock that is not set", wrong)
		set(signed)
		want(l, "a wrong signer, and a clock that was set later", signed)
		stop()
		l, stop = b.boot()
		want(l, "a wrong signer, and a restart", signed)
		stop()

		b.offset.Store(0)
		b.config.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
		l, stop = b.boot()
		want(l, "a stored signed time, and an API server", b.machine())
		l.RecordSigned(t.Context(), signed, MaxSignedAhead)
		want(l, "an API server proves the time", b.machine())
		stop()
	})
}
