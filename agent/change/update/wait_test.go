package update

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/api"
)

// TestFollowWaits checks that the followed archive is not read while Config.SaveWrites returns true. It is read soon afterwards, and then
// at the regular interval. An operator's request does not wait.
func TestFollowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wait atomic.Bool
		var looks atomic.Int32
		wait.Store(true)
		dir := t.TempDir()
		u := New(Config{Stager: Stager{Dir: dir, Program: filepath.Join(dir, "islet"), Log: slog.New(slog.DiscardHandler)}, Follow: "/archive", Every: 24 * time.Hour, SaveWrites: wait.Load,
			StagedPath: func() string { looks.Add(1); return "" }}) // without keys, each check ends before the archive is read
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx) }()
		after := func(d time.Duration, want int32) {
			t.Helper()
			time.Sleep(d) // in the bubble's time
			synctest.Wait()
			if got := looks.Swap(0); got != want {
				t.Errorf("%d checks, not %d", got, want)
			}
		}
		after(3*24*time.Hour+time.Hour, 0)
		if s := u.Status(); s.Problem == "" || !s.Checked.IsZero() {
			t.Errorf("the status does not say why there is no check: %+v", s)
		}
		if _, err := u.Update(ctx, "/archive", api.UpdateOptions{}, nil); err == nil {
			t.Error("no error")
		}
		after(0, 1)
		wait.Store(false)
		after(spareInterval, 1)
		after(24*time.Hour-time.Second, 0)
		after(time.Second, 1)
		problem := u.Status().Problem
		wait.Store(true)
		after(24*time.Hour, 0)
		if s := u.Status(); problem == "" || s.Problem != problem {
			t.Errorf("a check that waits hides the problem %q: %q", problem, s.Problem)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestBusy checks that no archive is fetched for a new trial while another trial is in progress. A dry run is still possible.
func TestBusy(t *testing.T) {
	s, key := stager(t)
	file := archive(t, t.TempDir(), "islet.tar.gz", "0.2.0", runtime.GOARCH, program(t, "good"), key)
	trial := filepath.Join(filepath.Dir(s.Program), "islet-1.new")
	if err := os.WriteFile(trial, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	busy := errors.New("a trial is under way")
	u := New(Config{Stager: *s, StagedPath: func() string { return trial }, CheckOffer: func(bool) error { return busy },
		Offer: func(*StagedProgram, string, bool) (string, bool, error) {
			t.Error("a program was offered during a trial")
			return "", false, nil
		}})
	if out, err := u.Update(t.Context(), file, api.UpdateOptions{Dry: true}, nil); err != nil || out.Version != "0.2.0" || out.ID != "" {
		t.Errorf("dry run: %+v, %v", out, err)
	}
	if _, err := u.Update(t.Context(), file, api.UpdateOptions{}, nil); !errors.Is(err, busy) {
		t.Error(err)
	}
	if got := left(t, s); got != "islet islet-1.new" {
		t.Errorf("only the installed program and the one on trial must be left: %s", got)
	}
}

// TestFollowOccupied checks that a check is repeated within minutes if it was skipped because of an operator's fetch. Nothing is logged
// about it.
func TestFollowOccupied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		var logged bytes.Buffer
		dir := t.TempDir()
		u := New(Config{Stager: Stager{Dir: dir, Program: filepath.Join(dir, "islet"), Log: slog.New(slog.NewTextHandler(&logged, nil))}, Follow: "/archive", Every: 24 * time.Hour,
			StagedPath: func() string { looks.Add(1); return "" }})
		u.once.Lock()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx) }()
		synctest.Wait()
		if looks.Load() > 0 || logged.Len() > 0 {
			t.Errorf("%d checks\n%s", looks.Load(), &logged)
		}
		u.once.Unlock()
		time.Sleep(firstRetry) // in the bubble's time
		synctest.Wait()
		if looks.Load() != 1 {
			t.Errorf("%d checks", looks.Load())
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
