package cni

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containernetworking/cni/libcni"
)

// TestStatusIsShared checks that a STATUS command that hangs delays no caller for longer than one command, however many callers there are,
// and that a caller stops waiting when its context ends. When the plugins answer again, callers notice it soon.
func TestStatusIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s statusCache
		var calls atomic.Int32
		var answers atomic.Bool
		list := &libcni.NetworkConfigList{Name: "podnet"}
		errHung := errors.New("no answer")
		status := func() error {
			calls.Add(1)
			if !answers.Load() {
				time.Sleep(statusTime) // in the bubble
				return errHung
			}
			return nil
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				began, ctx, want, wait := time.Now(), t.Context(), errHung, statusTime
				if i%2 == 0 {
					var stop func()
					ctx, stop = context.WithTimeout(ctx, time.Second)
					defer stop()
					want, wait = context.DeadlineExceeded, time.Second
				}
				if err := s.get(ctx, list, status); !errors.Is(err, want) || time.Since(began) != wait {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		}
		all.Wait()
		began := time.Now()
		for range 20 {
			if err := s.get(t.Context(), list, status); !errors.Is(err, errHung) {
				t.Error(err)
			}
		}
		if n := calls.Load(); n != 1 || time.Since(began) > 0 {
			t.Errorf("%d commands, the last callers waited %v", n, time.Since(began))
		}
		answers.Store(true)
		time.Sleep(statusTime) // in the bubble
		for range 20 {
			if err := s.get(t.Context(), list, status); err != nil {
				t.Error(err)
			}
		}
		if n := calls.Load(); n != 2 {
			t.Errorf("%d commands", n)
		}
		if err := s.get(t.Context(), &libcni.NetworkConfigList{Name: "new"}, status); err != nil || calls.Load() != 3 {
			t.Errorf("another configuration: %v, %d commands", err, calls.Load())
		}
	})
}

// TestFailedStatusIsRepeated checks that the error of a plugin that answers at once is not cached.
func TestFailedStatusIsRepeated(t *testing.T) {
	var s statusCache
	list := &libcni.NetworkConfigList{Name: "podnet"}
	errBusy := errors.New("not ready")
	for _, want := range []error{errBusy, nil} {
		if err := s.get(t.Context(), list, func() error { return want }); !errors.Is(err, want) {
			t.Errorf("%v, not %v", err, want)
		}
	}
}

// TestPluginsBlockNothingElse checks that neither a hanging STATUS command nor a hanging ADD blocks calls that need no plugin.
func TestPluginsBlockNothingElse(t *testing.T) {
	w := newWorld(t)
	n := w.network(t, w.conf(t, "10-podnet.conflist", w.chained("1.1.0")))
	same := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}
	check(t, n.SetPodCIDRs(t.Context(), same))
	n.operations.RLock() // as Setup does during ADD
	check(t, n.SetPodCIDRs(t.Context(), same))
	n.operations.RUnlock()
	list, err := n.plugins.confs.currentList()
	if err != nil || list == nil {
		t.Fatal(list, err)
	}
	synctest.Test(t, func(t *testing.T) {
		hung := &statusCall{list: list, ended: make(chan struct{})}
		n.plugins.status.call = hung
		ready := make(chan error)
		go func() { ready <- n.Ready() }()
		synctest.Wait()
		if !n.operations.TryLock() {
			t.Error("Ready holds the lock of all operations while plugins run")
		} else {
			n.operations.Unlock()
		}
		hung.err = errors.New("no answer")
		close(hung.ended)
		if err := <-ready; !errors.Is(err, hung.err) {
			t.Error(err)
		}
	})
}

// TestStatusComesBack checks a plugin that becomes ready without a change of the CNI directory: the pods that wait for the network start
// again.
func TestStatusComesBack(t *testing.T) {
	w := newWorld(t)
	refuse, bin := filepath.Join(w.dir, "refuse"), t.TempDir()
	machine := "#!/bin/sh\n[ ! -e " + refuse + " ] || { echo '{\"cniVersion\": \"1.1.0\", \"code\": 50, \"msg\": \"not yet\"}'; exit 1; }\n"
	check(t, os.WriteFile(refuse, nil, 0o600))
	check(t, os.WriteFile(filepath.Join(bin, "late"), []byte(machine), 0o700))
	changes := make(chan struct{}, 1)
	n := w.network(t, w.conf(t, "10-late.conflist", `{"cniVersion": "1.1.0", "name": "late", "plugins": [{"type": "late"}]}`), func(c *Config) {
		c.BinDirs = []string{bin}
		c.Changed = func() {
			select {
			case changes <- struct{}{}:
			default:
			}
		}
	})
	(&keptNode{world: w, n: n}).run(t)
	receive(t, changes) // the first STATUS has failed
	if n.CheckPodNetwork() == nil {
		t.Error("the network is ready")
	}
	check(t, os.Remove(refuse))
	receive(t, changes)
	check(t, n.CheckPodNetwork())
}

func receive(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatal("no change was reported")
	}
}
