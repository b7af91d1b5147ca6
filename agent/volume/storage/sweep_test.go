package storage

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/edge/store"
)

// A stagingDriver is a driver that stages volumes. To unstage a volume whose name begins with "silent", it waits until ctx ends.
type stagingDriver struct{ nfs }

func (stagingDriver) StagePath(v Volume) string                        { return "/staged/" + v.Name }
func (stagingDriver) Stage(context.Context, Volume, string, Use) error { return nil }

func (stagingDriver) Unstage(ctx context.Context, v Volume, _ string) error {
	if strings.HasPrefix(v.Name, "silent") {
		<-ctx.Done()
	}
	return ctx.Err()
}

// newStagingMounter returns a Mounter whose only driver is a stagingDriver.
func newStagingMounter(t *testing.T, root string, s *store.Store) *Mounter {
	t.Helper()
	k := newMounter(t, root, s, &objects{}, stagingDriver{})
	k.cfg.Drivers = []Driver{stagingDriver{}}
	return k
}

// putUnused stores the record of a staged volume that no pod uses.
func putUnused(t *testing.T, k *Mounter, name string) {
	t.Helper()
	v, d := Volume{ID: name, Name: name}, stagingDriver{}
	key := store.VolumeKey{Volume: name, Path: d.StagePath(v)}
	requireNoError(t, k.putRow(t.Context(), key, record{Plugin: d.Plugin(), Volume: v}))
}

// TestSilentVolumesDelayNoOther checks that Sweep unmounts the volumes whose drivers answer, although the drivers of others do not. Sweep
// ends also if its context does not.
func TestSilentVolumesDelayNoOther(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, root)
		defer s.Close()
		k := newStagingMounter(t, root, s)
		for _, name := range []string{"other", "silent-1", "silent-2", "the-last"} {
			putUnused(t, k, name)
		}
		for range 2 {
			began := time.Now()
			swept := make(chan error)
			go func() { swept <- k.Sweep(t.Context()) }()
			time.Sleep(time.Second) // in the bubble
			if left := k.unusedVolumes(); strings.Join(left, " ") != "silent-1 silent-2" {
				t.Errorf("not unmounted after a second: %q", left)
			}
			if err := <-swept; err == nil || time.Since(began) > mountTime {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		}
	})
}

// TestSilentOrphan checks a mount that is not in the database, and whose unmount does not return. Unused volumes are still unmounted, each
// Sweep ends, and there is no second unmount beside the first.
func TestSilentOrphan(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, root)
		defer s.Close()
		k := newStagingMounter(t, root, s)
		var calls atomic.Int32
		returns := make(chan struct{})
		k.orphans.unmount = func() error {
			calls.Add(1)
			<-returns
			return nil
		}
		for range 3 {
			putUnused(t, k, "other")
			began := time.Now()
			if err := k.Sweep(t.Context()); err == nil || time.Since(began) > mountTime || calls.Load() != 1 {
				t.Errorf("after %v: %v, %d unmounts", time.Since(began), err, calls.Load())
			}
			if left := k.unusedVolumes(); len(left) > 0 {
				t.Errorf("not unmounted: %q", left)
			}
		}
		close(returns)
		synctest.Wait()
		if err := k.Sweep(t.Context()); err != nil || calls.Load() != 2 {
			t.Errorf("%v, %d unmounts", err, calls.Load())
		}
	})
}
