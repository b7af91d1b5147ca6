package bundle

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/bundle/medium"
	"github.com/islet-edge/islet/agent/change/trial"
	format "github.com/islet-edge/islet/internal/bundle"
)

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

// TestWaitForStaging checks requests of persons while the node stages a followed bundle. The first request interrupts the staging and
// waits. Its wait ends with its context. Another request gets an error at once.
func TestWaitForStaging(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	interrupted := 0
	followed := request{followed: true, interrupt: func() { interrupted++ }}
	if err := n.lock(t.Context(), followed); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.lock(ctx, request{}); !errors.Is(err, context.Canceled) || interrupted != 1 {
		t.Errorf("a person who gives up: %v, %d interruptions", err, interrupted)
	}
	if err := n.lock(t.Context(), request{}); !errors.Is(err, medium.ErrBusy) || interrupted != 1 {
		t.Errorf("another request: %v, %d interruptions", err, interrupted)
	}
	n.unlock()
	if err := n.lock(t.Context(), request{}); err != nil {
		t.Error(err)
	}
}

// TestHoldTrials checks that no trial of a bundle begins while a configuration begins its own, not even of a bundle that is already staged.
// No configuration begins its trial while a bundle is on trial.
func TestHoldTrials(t *testing.T) {
	w := newWorld(t)
	file := w.bundle(1, nil)
	var n *Node
	held := false
	n = w.boot(func(step string) {
		if step == "image" {
			held = n.HoldTrials("x") // while the bundle is staged
		}
	})
	if _, err := apply(n, file, false); !held || !errors.Is(err, medium.ErrBusy) || !errors.Is(err, feed.ErrBusy) || n.now().Trial != nil {
		t.Fatalf("held: %v, %v", held, err)
	}
	n.ReleaseTrials()
	n.c.crash = nil
	if _, err := apply(n, file, false); err != nil || n.now().Trial == nil {
		t.Fatal(err)
	}
	if n.HoldTrials("x") {
		t.Error("a configuration can begin its trial")
	}
}

// TestHoldForConfiguration checks that only the configuration of the bundle on trial can begin its trial, and none while the node gives up
// a configuration.
func TestHoldForConfiguration(t *testing.T) {
	b := Bundle{"kiosk", 2, someDigest("2")}
	configurations := map[digest.Digest]trial.Change{b.Digest: {ID: "x", Before: "local"}}
	for name, c := range map[string]struct {
		record Record
		want   string
	}{
		"nothing":         {Record{}, "x y"},
		"a configuration": {Record{Trial: &Trial{Bundle: b, Configuring: true}, Configurations: configurations}, "x"},
		"pods":            {Record{Trial: &Trial{Bundle: b}, Configurations: configurations}, ""},
		"a return":        {Record{Abandoned: "x"}, ""},
	} {
		n := newWorld(t).boot(nil)
		n.record = c.record
		var held []string
		for _, id := range []string{"x", "y"} {
			if n.HoldTrials(id) {
				held = append(held, id)
			}
		}
		if got := strings.Join(held, " "); got != c.want || n.isHeld != (c.want != "") {
			t.Errorf("%s: %q can begin, want %q", name, got, c.want)
		}
	}
}

// A defectiveLayout opens each file for almost a minute, as a defective stick does.
type defectiveLayout struct{ format.Layout }

func (l defectiveLayout) Open(name string) (io.ReadCloser, int64, error) {
	time.Sleep(59 * time.Second) // in the bubble's time
	return l.Layout.Open(name)
}

// TestSlowStick checks that a stick that answers slowly does not keep a person from applying another bundle.
func TestSlowStick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		stick, file := w.bundle(2, second("more")), w.bundle(1, nil)
		n, stop := w.run()
		defer stop()
		ended := make(chan error, 1)
		go func() {
			_, _, err := n.ApplyNewest(t.Context(), []medium.Offer{{Name: "kiosk.tar", Open: func() (format.Layout, error) {
				l, err := format.OpenLayout(stick)
				return defectiveLayout{l}, err
			}}})
			ended <- err
		}()
		for { // until the bundle is chosen, and is being staged
			time.Sleep(time.Second)
			if s, err := n.Status(); err != nil || s.Staging != "" {
				break
			}
		}
		began := time.Now()
		_, err := apply(n, file, false)
		w.must(err)
		if waited := time.Since(began); waited > 2*time.Minute {
			t.Errorf("a person has waited for %v", waited)
		}
		if err := <-ended; !errors.Is(err, medium.ErrBusy) {
			t.Errorf("the stick: %v", err)
		}
		last, err := n.AwaitTrial(t.Context())
		w.must(err)
		if last.Number != 1 || last.Result != Kept {
			t.Errorf("%+v", last)
		}
		_, _, err = n.ApplyNewest(t.Context(), offers(stick)) // the stick is used afterwards
		w.must(err)
	})
}
