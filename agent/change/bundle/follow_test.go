package bundle

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

import (
	"crypto/ed25519"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/agent/change/bundle/feed"
	"github.com/islet-edge/islet/internal/api"
)

const followed = "https://bundles.example.com/kiosk.tar"

// A webSite serves one file without a network, so that the clock of a bubble advances.
type webSite struct {
	mu    sync.Mutex
	file  string                        // "" for no link
	block atomic.Pointer[chan struct{}] // no answer before it is closed; may be nil
	asked int
}

func (s *webSite) serve(file string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file = file
}

func (s *webSite) RoundTrip(r *http.Request) (*http.Response, error) {
	if block := s.block.Load(); block != nil {
		select {
		case <-*block:
		case <-r.Context().Done():
		}
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.file == "" {
		return nil, errors.New("no route to host")
	}
	w := httptest.NewRecorder()
	w.Header().Set("ETag", `"`+filepath.Base(filepath.Dir(s.file))+`"`)
	http.ServeFile(w, r, s.file)
	return w.Result(), nil
}

// followNode starts a node that follows the site.
func (w *world) followNode(s *webSite, source string) (*Node, func()) {
	n := w.open(nil, Remote{Source: source, Every: time.Minute, NewClient: func() *http.Client { return &http.Client{Transport: s} }})
	return n, start(n)
}

// TestFollowed checks which bundles of a followed source the node tries by itself: those with a greater number than every earlier one, and
// each only once, also after a restart and while the link is down. A person can apply every bundle at any time.
func TestFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t), &webSite{}
		w.bad["bad"] = true
		one, two, three, five := w.bundle(1, nil), w.bundle(2, second("bad")), w.bundle(3, second("more")), w.bundle(5, second("last"))
		n, stop := w.followNode(s, followed)
		status := func(when, want string) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			b, err := n.Status()
			w.must(err)
			got := ""
			if b.Current != nil {
				got = strings.TrimSpace(b.Current.Name + " " + string('0'+rune(b.Current.Number)))
			}
			if b.Last != nil {
				got += " " + b.Last.Result
			}
			if b.Source.Problem != "" {
				got += " problem"
			}
			if got != want || b.Trial != nil {
				t.Errorf("%s: %q, want %q: %+v", when, got, want, b.Source)
			}
		}
		status("no link", " problem")
		s.serve(one)
		status("the first", "kiosk 1 kept")
		s.serve(two)
		status("a bad one", "kiosk 1 failed")
		failed := n.now().Last.Time
		status("the bad one again", "kiosk 1 failed")
		stop()
		n, stop = w.followNode(s, followed)
		status("the bad one after a restart", "kiosk 1 failed")
		if !n.now().Last.Time.Equal(failed) {
			t.Error("it was tried again")
		}
		s.serve(three)
		status("a good one", "kiosk 3 kept")
		_, err := n.Revert(t.Context())
		w.must(err)
		status("reverted", "kiosk 1 reverted")
		s.serve("")
		status("no link again", "kiosk 1 reverted problem")
		s.serve(two)
		status("an older one", "kiosk 1 reverted")
		_, err = apply(n, five, false)
		w.must(err)
		status("a person", "kiosk 5 kept")
		s.serve(w.bundle(5, nil))
		status("another one with that number", "kiosk 5 kept")
		right := w.key
		w.key = ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize)))
		s.serve(w.bundle(6, nil))
		w.key = right
		status("not signed by a key of the node", "kiosk 5 kept problem")
		s.serve(w.bundle(7, nil))
		status("a greater number", "kiosk 7 kept")
		w.check(n, "at the end")
		if _, err := os.Stat(filepath.Join(w.dir, downloadDir)); err == nil {
			t.Error("fetched layers are left")
		}
		stop()
		w.must(os.Remove(filepath.Join(w.dir, File)))
		delete(w.meta, seenKey)
		n, stop = w.followNode(s, followed)
		status("the record was removed", "kiosk 7 kept")
		stop()
	})
}

// TestPersonComesFirst checks that a person who applies a bundle does not wait for the fetch of the followed one, which continues later.
func TestPersonComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t), &webSite{}
		s.serve(w.bundle(9, second("late")))
		blocked := make(chan struct{})
		s.block.Store(&blocked)
		n, stop := w.followNode(s, followed)
		defer stop()
		time.Sleep(30 * time.Second)
		_, err := apply(n, w.bundle(8, nil), false)
		w.must(err)
		close(blocked)
		time.Sleep(3 * time.Minute)
		if b, err := n.Status(); err != nil || b.Current == nil || b.Current.Number != 9 || b.Previous == nil || b.Previous.Number != 8 {
			t.Errorf("%+v, %v", b, err)
		}
	})
}

// TestFollowedRepair checks that the followed source repairs the bundle in use after a start, although the source has nothing new. The node
// does not fetch a bundle again whose parts are complete.
func TestFollowedRepair(t *testing.T) {
	build := newWorld(t)
	one := build.bundle(1, nil)
	for name, damage := range map[string]func(w *world, folder string){
		"a file is missing":   func(w *world, folder string) { w.must(os.Remove(filepath.Join(folder, filesDir, "web.yaml"))) },
		"the images are gone": func(w *world, _ string) { clear(w.imported) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w, s := newWorld(t), &webSite{}
			w.damaged = true
			s.serve(one)
			n, stop := w.followNode(s, followed)
			time.Sleep(3 * time.Minute)
			stop()
			b := *n.now().Current
			damage(w, filepath.Join(w.dir, foldersDir, folderName(b.Digest)))
			n, stop = w.followNode(s, followed)
			defer stop()
			time.Sleep(3 * time.Minute)
			if status, err := n.Status(); err != nil || !n.isComplete(t.Context(), b) || status.Source.Problem != "" || status.Trial != nil {
				t.Errorf("%s: not repaired: %+v, %v", name, status, err)
			}
			if !slices.Equal(w.names(), []string{"web"}) {
				t.Errorf("%s: pods %v", name, w.names())
			}
			count := func() int {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.asked
			}
			asked := count()
			time.Sleep(10*time.Minute + time.Second)
			if more := count() - asked; more > 12 {
				t.Errorf("%s: %d requests after the repair", name, more)
			}
		})
	}
}

// TestApplyURL checks a bundle that a person applies from a server: it is tried, it is an error during a failure of the link, and nothing
// is left of an unfinished fetch after a day.
func TestApplyURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t), &webSite{}
		s.serve(w.bundle(1, nil))
		n, stop := w.followNode(s, "")
		defer stop()
		b, err := apply(n, followed, false)
		w.must(err)
		if b != (api.Bundle{Name: "kiosk", Number: 1, Digest: b.Digest}) {
			t.Errorf("%+v", b)
		}
		time.Sleep(10 * time.Second)
		if b, err := apply(n, followed, false); err != nil || !b.InUse {
			t.Errorf("%+v, %v", b, err)
		}
		s.serve("")
		part := filepath.Join(w.dir, downloadDir, "x.part")
		w.must(os.MkdirAll(filepath.Dir(part), 0o700))
		w.must(os.WriteFile(part, nil, 0o600))
		w.must(os.Chtimes(part, time.Now(), time.Now()))
		if _, err := apply(n, followed, false); err == nil || !strings.Contains(err.Error(), "no route") {
			t.Error(err)
		}
		time.Sleep(keepDownload - time.Minute)
		if _, err := os.Stat(part); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if _, err := os.Stat(part); err == nil {
			t.Error("an unfinished fetch is kept for ever")
		}
		if s, err := n.Status(); err != nil || s.Source != nil {
			t.Errorf("a source without a configuration: %+v, %v", s.Source, err)
		}
		if _, err := os.Stat(filepath.Join(w.dir, sourceFile)); err == nil {
			t.Error("a state without a source")
		}
	})
}

// TestFollowedDuringTrial checks that a followed bundle waits while a configuration is on trial.
func TestFollowedDuringTrial(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	n.c.CheckTrial = func() error { return errors.New("a configuration is on trial") }
	if _, err := n.ApplyFollowed(t.Context(), followed, feed.Seen{}); !errors.Is(err, feed.ErrBusy) {
		t.Error(err)
	}
}

// TestFetchOfLaterClock checks an incomplete fetch on a board whose clock begins in the past at each boot. The layers stay until the clock
// is right, because the fetch can be continued.
func TestFetchOfLaterClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // its clock begins before the earliest time
		w, s := newWorld(t), &webSite{}
		part := filepath.Join(w.dir, downloadDir, "x.part")
		w.must(os.MkdirAll(filepath.Dir(part), 0o700))
		w.must(os.WriteFile(part, nil, 0o600))
		w.must(os.Chtimes(part, time.Now().AddDate(27, 0, 0), time.Now().AddDate(27, 0, 0)))
		_, stop := w.followNode(s, "")
		defer stop()
		for range 3 {
			time.Sleep(keepDownload / 2)
			if _, err := os.Stat(part); err != nil {
				t.Fatal(err)
			}
		}
		w.must(os.Chtimes(part, time.Now(), time.Now())) // as if the clock were set to the time of the fetch
		time.Sleep(keepDownload + 2*time.Hour)
		if _, err := os.Stat(part); err == nil {
			t.Error("an unfinished fetch is kept for ever")
		}
	})
}
