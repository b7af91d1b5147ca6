package bundle

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/agent/change/bundle/medium"
	"github.com/islet-edge/islet/agent/change/trial"
)

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
