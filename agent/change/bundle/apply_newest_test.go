package bundle

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/bundle/medium"
	format "github.com/islet-edge/islet/internal/bundle"
)

// offers returns an offer for each file.
func offers(files ...string) (list []medium.Offer) {
	for i, file := range files {
		list = append(list, medium.Offer{Name: fmt.Sprint("offer ", i), Open: func() (format.Layout, error) { return format.OpenLayout(file) }})
	}
	return list
}

// TestOffers checks which of the bundles on a stick the node tries: the newest that is signed and for this node. It tries no number twice,
// and does nothing if the newest bundle is in use.
func TestOffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		key := w.key
		w.key = ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize)))
		foreign := w.bundle(9, nil)
		w.key = key
		elsewhere := w.bundle(8, replace("bundle.yaml", "names: [b, a]", "names: [b]"))
		one, two, three, bad := w.bundle(1, nil), w.bundle(2, nil), w.bundle(3, second("more")), w.bundle(4, second("bad"))
		w.bad["bad"] = true
		n, stop := w.run()
		defer stop()
		try := func(want string, files ...string) {
			t.Helper()
			ctx := context.Background()
			name, b, err := n.ApplyNewest(ctx, offers(files...))
			got := fmt.Sprint(name, ", number ", b.Number)
			if b.InUse {
				got += ", in use"
			}
			for _, e := range []error{ErrTried, ErrOlder} {
				if errors.Is(err, e) {
					got += ", " + e.Error()
					err = nil
				}
			}
			last, err2 := n.AwaitTrial(ctx)
			if err := errors.Join(err, err2); err != nil {
				got += ", " + err.Error()
			}
			if last != nil {
				got += fmt.Sprint("; ", last.Number, " ", last.Result)
			}
			if !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		try(", number 0, offer 0: ", foreign, elsewhere)
		n.c.CheckTrial = func() error { return errors.New("a configuration is on trial") }
		if _, _, err := n.ApplyNewest(context.Background(), offers(two)); !errors.Is(err, medium.ErrBusy) {
			t.Errorf("during a trial of the agent: %v", err)
		}
		n.c.CheckTrial = func() error { return nil }
		try("offer 2, number 2; 2 kept", foreign, one, two, elsewhere)
		try("offer 1, number 2, in use; 2 kept", one, two)
		try("offer 0, number 9, name: ", w.bundle(9, replace("bundle.yaml", "name: kiosk", "name: lab"))) // signed at the same time
		try("offer 0, number 1, the bundle is older; 2 kept", one)
		try("offer 0, number 4; 4 failed", bad, three)
		try("offer 0, number 4, it was tried already; 4 failed", bad)
		try("offer 0, number 3, the bundle is older", three)
		if _, err := n.Revert(context.Background()); err == nil {
			t.Error("there was no bundle before")
		}
	})
}

// hostile is a layout that becomes another one when it is opened again.
type hostile struct{ files []string }

func (h *hostile) open() (format.Layout, error) {
	file := h.files[0]
	if len(h.files) > 1 {
		h.files = h.files[1:]
	}
	if file == "" {
		return nil, &fs.PathError{Op: "open", Path: "index.json", Err: errors.New("input/output error")}
	}
	return format.OpenLayout(file)
}

// TestHostileOffer checks that nothing changes if a stick has another bundle when it is read again, or is pulled out.
func TestHostileOffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, two := w.bundle(1, nil), w.bundle(2, nil)
		n, stop := w.run()
		defer stop()
		for _, files := range [][]string{{two, one}, {one, two}, {two, ""}} {
			h := &hostile{files}
			if name, _, err := n.ApplyNewest(context.Background(), []medium.Offer{{Name: "x", Open: h.open}}); err == nil || name != "x" {
				t.Errorf("%q, %v", name, err)
			}
			if s, err := n.Status(); err != nil || s.Trial != nil || s.Current != nil || len(w.folders()) > 0 {
				t.Errorf("%+v, %v, %q", s, err, w.folders())
			}
		}
		if _, _, err := n.ApplyNewest(context.Background(), offers(two)); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if s, err := n.Status(); err != nil || s.Current == nil || s.Current.Number != 2 {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
