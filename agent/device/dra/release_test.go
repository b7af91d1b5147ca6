package dra

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/store"
)

// storedClaims returns the names of the stored claims.
func (w *world) storedClaims() (out []string) {
	w.t.Helper()
	rows, err := w.db.Claims(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range rows {
		out = append(out, r.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestReleaseCallsEachDriverOnce checks that one call of a driver unprepares all claims of a pod, as in a kubelet, and that a driver that
// hangs delays only its own claims.
func TestReleaseCallsEachDriverOnce(t *testing.T) {
	w := newWorld(t)
	counted := &counts{}
	w.c.Counter = counted
	good, hangs := &fake{}, &fake{hold: make(chan struct{})}
	w.register(good.serve(t, false))
	slow := hangs.serve(t, false)
	slow.Name = "a.example.com" // its claims come first in each order
	w.register(slow)
	p, other, next := pod("p", "a", "b", "c", "d", "shared"), pod("other", "shared"), pod("next", "c", "shared")
	for _, name := range []string{"a", "b", "c", "d", "shared"} {
		c := w.object(name, p, other, next)
		if name == "a" || name == "b" {
			c.Status.Allocation.Devices.Results[0].Driver = slow.Name
		}
	}
	w.prepare(p, "")
	w.prepare(other, "")
	ctx, stop := context.WithCancel(t.Context())
	released := make(chan error, 1)
	go func() { released <- w.Release(ctx, p.UID) }()
	<-hangs.hold
	unprepares := func() (n int) {
		counted.mu.Lock()
		defer counted.mu.Unlock()
		for _, c := range counted.said {
			if strings.Contains(c, "NodeUnprepareResources") {
				n++
			}
		}
		return n
	}
	for again := time.Tick(5 * time.Millisecond); !slices.Equal(w.storedClaims(), []string{"a", "b", "shared"}); {
		<-again
	}
	w.prepare(next, "") // it does not wait for the driver that hangs
	stop()
	if err := <-released; err == nil {
		t.Error("the claims of the driver that hangs are released")
	}
	hangs.hold <- struct{}{}
	hangs.mu.Lock()
	hangs.hold = nil
	hangs.mu.Unlock()
	if err := w.Release(t.Context(), p.UID); err != nil || !slices.Equal(w.storedClaims(), []string{"c", "shared"}) {
		t.Error(err, w.storedClaims())
	}
	if n := unprepares(); n != 3 {
		t.Errorf("%d calls of the drivers: %q", n, counted.said)
	}
}

// TestReleaseSkipsBusyClaims checks that a pod's other claims are unprepared while one of its claims is being prepared for another pod.
func TestReleaseSkipsBusyClaims(t *testing.T) {
	w := newWorld(t)
	w.register((&fake{}).serve(t, false))
	p := pod("p", "a", "b")
	w.object("a", p)
	w.object("b", p)
	w.prepare(p, "")
	locked, _ := tryLockClaims([]*claim{w.findClaim(p, "a")})
	ctx, stop := context.WithCancel(t.Context())
	released := make(chan error, 1)
	go func() { released <- w.Release(ctx, p.UID) }()
	for again := time.Tick(5 * time.Millisecond); !slices.Equal(w.storedClaims(), []string{"a"}); {
		<-again
	}
	stop()
	if err := <-released; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	unlockClaims(locked)
	requireNoError(t, w.Release(t.Context(), p.UID))
	if got := w.storedClaims(); len(got) != 0 {
		t.Errorf("stored claims: %q", got)
	}
}

// A fullStore is a store on a full disk.
type fullStore struct{ *store.Store }

func (fullStore) PutClaims(context.Context, []store.Claim) error    { return errors.New("disk full") }
func (fullStore) RemoveClaims(context.Context, []store.Claim) error { return errors.New("disk full") }

// TestReleaseIsStoredFirst checks that a release that cannot be stored is retried, and is not lost by a restart of the agent. The driver
// unprepares the claim when the last pod of the claim is deleted.
func TestReleaseIsStoredFirst(t *testing.T) {
	for _, retried := range []bool{true, false} {
		w := newWorld(t)
		f := &fake{}
		at := f.serve(t, false)
		w.register(at)
		a, b := pod("a", "gpu"), pod("b", "gpu")
		w.object("gpu", a, b)
		w.prepare(a, "")
		w.prepare(b, "")
		w.c.Store = fullStore{w.db}
		for range 2 {
			if err := w.Release(t.Context(), a.UID); err == nil {
				t.Error("a release that is not stored has succeeded")
			}
		}
		w.c.Store = w.db
		if retried {
			requireNoError(t, w.Release(t.Context(), a.UID))
		}
		w.start()
		w.touched = make(chan types.UID, 100)
		f.recordedCalls()
		w.Sweep(func(uid types.UID) bool { return uid == b.UID })
		for len(w.touched) > 0 {
			requireNoError(t, w.Release(t.Context(), <-w.touched))
		}
		w.register(at)
		if got := cdi(w, b); len(got) != 1 || f.recordedCalls() != "" {
			t.Errorf("the other pod has %q", got)
		}
		w.c.Store = fullStore{w.db}
		if err := w.Release(t.Context(), b.UID); err == nil {
			t.Error("a release that is not stored has succeeded")
		}
		w.c.Store = w.db
		requireNoError(t, w.Release(t.Context(), b.UID))
		if got := f.recordedCalls(); got != "unprepare gpu, unprepare gpu" {
			t.Errorf("calls of the driver: %q", got)
		}
		if got := w.storedClaims(); len(got) != 0 {
			t.Errorf("stored claims: %q", got)
		}
	}
}

// TestSweep checks that Sweep calls PodChanged only for the pods that no longer exist, and that PodChanged is called again for such a pod
// when the driver of its claim registers later.
func TestSweep(t *testing.T) {
	w := newWorld(t)
	f := &fake{}
	at := f.serve(t, false)
	w.register(at)
	gone, here := pod("gone", "a", "b"), pod("here", "c")
	w.object("a", gone)
	w.object("b", gone)
	w.object("c", here)
	w.prepare(gone, "")
	w.prepare(here, "")
	w.start()
	f.recordedCalls()
	w.touched = make(chan types.UID, 100)
	w.Sweep(func(uid types.UID) bool { return uid == here.UID })
	if uid := <-w.touched; uid != gone.UID || len(w.touched) > 0 {
		t.Fatalf("reported %s and %d more", uid, len(w.touched))
	}
	if err := w.Release(t.Context(), gone.UID); err == nil { // as the pod's worker does
		t.Error("claims are released without their driver")
	}
	w.register(at)
	if uid := <-w.touched; uid != gone.UID {
		t.Fatalf("the driver registered for %s", uid)
	}
	requireNoError(t, w.Release(t.Context(), gone.UID))
	if got := f.recordedCalls(); got != "unprepare a, unprepare b" || !slices.Equal(w.storedClaims(), []string{"c"}) {
		t.Errorf("calls of the driver: %q; stored claims: %q", got, w.storedClaims())
	}
}
