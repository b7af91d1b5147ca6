package podvolumes

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A lostKind is a Kind whose driver is gone, so its volumes cannot be unmounted. If it is silent, a call ends only with its context.
type lostKind struct {
	servedKind
	gone, silent            atomic.Bool
	sweeps, running, atOnce atomic.Int32 // calls of Sweep: all, the running ones, and the largest number of running ones
}

func (k *lostKind) HasPod(types.UID) bool { return k.gone.Load() }
func (k *lostKind) Pods() (uids []types.UID) {
	if k.gone.Load() {
		uids = append(uids, "lost")
	}
	return uids
}

func (k *lostKind) TearDown(ctx context.Context, _ types.UID) error { return k.unmount(ctx) }

func (k *lostKind) Sweep(ctx context.Context) error {
	k.sweeps.Add(1)
	k.atOnce.Store(max(k.atOnce.Load(), k.running.Add(1)))
	defer k.running.Add(-1)
	return k.unmount(ctx)
}

func (k *lostKind) unmount(ctx context.Context) error {
	if k.silent.Load() {
		<-ctx.Done()
	}
	if k.gone.Load() {
		return errors.New("this node has no driver")
	}
	return nil
}

// TestSweepsShareOneLoop checks that the volumes that cannot be unmounted are tried equally often, and by one call at a time, however often
// Sweep was called. Each Sweep tries them at once, and the tries end when they succeed.
func TestSweepsShareOneLoop(t *testing.T) {
	root := t.TempDir()
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k := &lostKind{}
			k.gone.Store(true)
			k.silent.Store(silent)
			v, err := New(Config{Root: root, Hostname: func(*v1.Pod) (string, string) { return "h", "" }, Kinds: []Kind{k}})
			if err != nil {
				t.Fatal(err)
			}
			none := func(types.UID) bool { return false }
			const sweeps = 12
			for range sweeps {
				if err := v.Sweep(t.Context(), none); err == nil {
					t.Error("Sweep reports no error")
				}
			}
			if n := k.sweeps.Load(); !silent && n < sweeps {
				t.Errorf("%d calls at %d sweeps", n, sweeps)
			}
			k.sweeps.Store(0)
			time.Sleep(time.Hour) // in the bubble
			if n := k.sweeps.Load(); n < 10 || n > 62 || k.atOnce.Load() != 1 {
				t.Errorf("silent: %v: %d calls in an hour, %d at once", silent, n, k.atOnce.Load())
			}
			k.gone.Store(false)
			k.silent.Store(false)
			if !silent {
				began := time.Now()
				if err := v.Sweep(t.Context(), none); err != nil || time.Since(began) > 0 {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			}
			time.Sleep(sweepEach + sweepAgain) // in the bubble
			synctest.Wait()
			k.sweeps.Store(0)
			time.Sleep(time.Hour) // in the bubble
			if n := k.sweeps.Load(); n != 0 || len(v.sweeps.running) != 0 {
				t.Errorf("silent: %v: %d calls after the last unmount, loops: %v", silent, n, v.sweeps.running)
			}
		})
	}
}

// TestSweepDuringSweep checks that a Sweep also unmounts the volumes that have become unused after an earlier Sweep has begun. It must not
// take over the result of the earlier one.
func TestSweepDuringSweep(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k := &lostKind{}
		k.silent.Store(true)
		v, err := New(Config{Root: root, Hostname: func(*v1.Pod) (string, string) { return "h", "" }, Kinds: []Kind{k}})
		if err != nil {
			t.Fatal(err)
		}
		none := func(types.UID) bool { return false }
		first, stop := context.WithCancel(t.Context())
		firstEnded, ended := make(chan error), make(chan error)
		go func() { firstEnded <- v.Sweep(first, none) }()
		synctest.Wait()
		k.silent.Store(false) // the later call gets an answer
		go func() { ended <- v.Sweep(t.Context(), none) }()
		synctest.Wait()
		stop()
		<-firstEnded
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := k.sweeps.Load(); n != 2 {
			t.Errorf("%d calls for two sweeps", n)
		}
	})
}

// A podKind is a Kind that has unmounted everything except the volume of one removed pod.
type podKind struct{ *lostKind }

func (podKind) Sweep(context.Context) error { return nil }

// TestSweepWaitsOnce checks that only the first Sweep waits for a pod whose volume cannot be unmounted. Each later one would otherwise
// delay the removal of files from a full disk.
func TestSweepWaitsOnce(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		k := podKind{&lostKind{}}
		k.gone.Store(true)
		v, err := New(Config{Root: root, Hostname: func(*v1.Pod) (string, string) { return "h", "" }, Kinds: []Kind{k}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		none := func(types.UID) bool { return false }
		for i := range 3 {
			began := time.Now()
			err := v.Sweep(ctx, none)
			if waited := time.Since(began); (err != nil) != (i == 0) || (waited > 0) != (i == 0) {
				t.Errorf("sweep %d: %v after %v", i, err, waited)
			}
		}
		stop()
		synctest.Wait()
	})
}
