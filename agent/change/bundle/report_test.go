package bundle

// All calls of time.Sleep in this file are in synctest bubbles, whose clock advances at once.

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
)

const reports = "https://user:password@office.example.com/nodes?token=secret"

// An office answers reports without a network. It records the states that it has received.
type office struct {
	t      testing.TB
	mu     sync.Mutex
	answer func(w http.ResponseWriter) // nil for success
	states []api.BundleState
	asked  int
}

func (o *office) RoundTrip(r *http.Request) (*http.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	if r.URL.Host != "office.example.com" || r.Method != http.MethodPost {
		o.t.Errorf("%s %s", r.Method, r.URL)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	if o.answer != nil {
		o.answer(w)
		return w.Result(), nil
	}
	var document format.SignedState
	var s api.BundleState
	err = json.Unmarshal(text, &document)
	if err == nil {
		_, err = document.Verify()
	}
	if err == nil {
		err = json.Unmarshal(document.State, &s)
	}
	if err != nil {
		o.t.Error(err)
	}
	o.states = append(o.states, s)
	return w.Result(), nil
}

// set sets the answer, and returns the number of requests and what the office has received since the last call.
func (o *office) set(answer func(w http.ResponseWriter)) (asked int, states []api.BundleState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	asked, states = o.asked, o.states
	o.answer, o.asked, o.states = answer, 0, nil
	return asked, states
}

// startNode starts a node that reports to the office.
func (o *office) startNode(w *world) (*Node, func()) { return o.startNodeWith(w, nil) }

// startNodeWith starts a node that reports to the office, and tries versions of islet.
func (o *office) startNodeWith(w *world, p Programs) (*Node, func()) {
	n := w.open(nil, Remote{ReportURL: reports, NewReportClient: func() *http.Client { return &http.Client{Transport: o} }})
	if p != nil {
		n.Connect(n.c.Pods, nil, p)
		n.SetFacts("0.2.0", nil)
	}
	return n, start(n)
}

// TestReports checks when a node sends its state: once, and when a trial has begun or ended. It repeats a report that was not accepted
// after the time that the server requests, and sends only the newest state. After a restart it sends nothing again.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := newWorld(t), &office{t: t}
		one, two := w.bundle(1, nil), w.bundle(2, second("more"))
		o.answer = func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		n, stop := o.startNode(w)
		time.Sleep(9 * time.Minute)
		if asked, _ := o.set(nil); asked != 1 {
			t.Errorf("%d requests before Retry-After", asked)
		}
		if s, err := n.Status(); err != nil || !strings.Contains(s.Report.Problem, "503") || !s.Report.Sent.IsZero() {
			t.Errorf("%+v, %v", s.Report, err)
		}
		time.Sleep(24 * time.Hour)
		if asked, states := o.set(nil); asked != 1 || len(states) != 1 || states[0].Node != "a" || states[0].Last != nil {
			t.Errorf("without a bundle: %d requests, %+v", asked, states)
		}
		for _, file := range []string{one, two} {
			if _, err := apply(n, file, false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			_, states := o.set(nil)
			if len(states) == 0 || len(states) > 2 || states[len(states)-1].Last == nil || states[len(states)-1].Last.Result != Kept {
				t.Errorf("a bundle: %+v", states)
			}
		}
		stop()
		n, stop = o.startNode(w)
		time.Sleep(time.Hour)
		if asked, _ := o.set(func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }); asked != 0 {
			t.Errorf("%d requests after a restart", asked)
		}
		if _, err := n.Revert(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		stop()
		_, stop = o.startNode(w)
		o.set(nil)
		time.Sleep(2 * time.Hour)
		if _, states := o.set(nil); len(states) != 1 || states[0].Last.Result != Reverted {
			t.Errorf("a revert before a restart: %+v", states)
		}
		stop()
	})
}

// TestReportOfUpdates checks that a node that follows an index of islet's versions sends its state when their outcomes have changed, also
// without a bundle, and that another node's state says nothing about them.
func TestReportOfUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := newWorld(t), &office{t: t}
		start := func(p *programs) func() {
			_, stop := o.startNodeWith(w, p)
			return stop
		}
		sent := func(what string, want int) []api.BundleState {
			time.Sleep(time.Hour)
			synctest.Wait()
			_, states := o.set(nil)
			if len(states) != want {
				t.Errorf("%s: %d reports", what, len(states))
			}
			return states
		}
		stop := start(&programs{world: w})
		if s := sent("no index", 1); len(s) > 0 && s[0].Update != nil {
			t.Errorf("%+v", s)
		}
		stop()
		p := &programs{world: w, report: &api.UpdateState{Arch: "arm64", OnTrial: true}, changed: make(chan struct{})}
		stop = start(p)
		if s := sent("on trial", 1); len(s) > 0 && (s[0].Update == nil || !s[0].Update.OnTrial) {
			t.Errorf("%+v", s)
		}
		stop()
		p.report = &api.UpdateState{Arch: "arm64"}
		stop = start(p)
		sent("after the trial", 1)
		p.report = &api.UpdateState{Arch: "arm64", Trials: []api.UpdateTrial{{ID: "islet-0.3.0-abc", Result: api.UpdateUnfit}}}
		before := p.changed
		p.changed = make(chan struct{})
		close(before)
		if s := sent("unfit", 1); len(s) > 0 && (s[0].Update == nil || len(s[0].Update.Trials) != 1) {
			t.Errorf("%+v", s)
		}
		sent("nothing", 0)
		stop()
		stop = start(p)
		sent("after a restart", 0)
		stop()
	})
}

// TestReportOfLiar checks that a server cannot lead a report to another server, and that no message contains the secrets of the URL.
func TestReportOfLiar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, o := newWorld(t), &office{t: t} // the office reports requests to other hosts
		for _, status := range []int{http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			o.answer = func(w http.ResponseWriter) {
				w.Header().Set("Location", "https://elsewhere.example.com/")
				w.WriteHeader(status)
			}
			n, stop := o.startNode(w)
			time.Sleep(20 * time.Second)
			s, err := n.Status()
			if err != nil || s.Report.Problem == "" {
				t.Errorf("%d: %+v, %v", status, s.Report, err)
			}
			text, err := json.Marshal(s)
			if err != nil || strings.Contains(string(text), "secret") || strings.Contains(string(text), "password") {
				t.Errorf("%s, %v", text, err)
			}
			stop()
		}
	})
}
