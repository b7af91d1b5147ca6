package objects

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
)

// This type is a set of one desired pod.
type desiredPod struct{ atomic.Pointer[v1.Pod] }

func (d *desiredPod) Get(types.UID) (desired.Pod, bool) {
	return desired.Pod{Pod: d.Load()}, d.Load() != nil
}
func (d *desiredPod) List() []desired.Pod { return nil }

// TestFailedRefresh checks that the volumes of a pod are updated again after a failure, although nothing changes, until it succeeds or the
// pod is not desired any more. The other failed actions of the pod are tried again only at the change.
func TestFailedRefresh(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), filepath.Join(dir, "islet.db"), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var full atomic.Bool
		var calls, retries atomic.Int32
		pods := &desiredPod{}
		o, err := Open(t.Context(), Config{
			Standalone: true, Store: s, Dir: filepath.Join(dir, "claims"), Desired: pods, Log: slog.New(slog.DiscardHandler),
			Retry: func(types.UID) { retries.Add(1) },
			Refresh: func(*v1.Pod) error {
				calls.Add(1)
				if full.Load() {
					return errors.New("the disk is full")
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- o.Run(ctx) }()
		countIn := func(d time.Duration) int32 {
			calls.Store(0)
			time.Sleep(d) // in the bubble
			return calls.Load()
		}
		for _, removed := range []bool{false, true} {
			pods.Store(podtest.New("p"))
			full.Store(true)
			for range 3 { // several changes have one retry together
				o.MarkOutdated("uid")
				synctest.Wait()
			}
			if n := countIn(time.Hour); n < 20 || n > 200 {
				t.Errorf("%d attempts in an hour", n)
			}
			if removed {
				pods.Store(nil)
			} else {
				full.Store(false)
				if n := countIn(lastRefresh); n != 1 {
					t.Errorf("%d attempts after the fault", n)
				}
			}
			if n := countIn(time.Hour); n != 0 {
				t.Errorf("removed: %v: %d attempts without a reason", removed, n)
			}
		}
		if n := retries.Load(); n != 6 {
			t.Errorf("the pod was tried again %d times at 6 changes", n)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
