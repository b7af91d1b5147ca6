package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
)

// errWebhook is the error of a webhook that cannot be called.
var errWebhook = apierrors.NewInternalError(errors.New("failed calling webhook \"events.example.com\": no endpoints available"))

// TestEventsThatFail checks that events that the server never stores do not block other events, and that they are given up if the server
// answers with an error that concerns only them. Otherwise they arrive when the server stores them. The events have a namespace of their
// own, or the namespace of the others.
func TestEventsThatFail(t *testing.T) {
	answer := func(err error) func(*apitest.Server, http.ResponseWriter, *http.Request) {
		return func(s *apitest.Server, w http.ResponseWriter, r *http.Request) { s.WriteError(w, r, err) }
	}
	for name, c := range map[string]struct {
		namespace string
		answer    func(s *apitest.Server, w http.ResponseWriter, r *http.Request)
		within    time.Duration // maximum delay of other events
		kept      bool          // the events are not given up
	}{
		"webhook of a namespace": {"bad", answer(errWebhook), time.Second, false},
		"webhook of one event":   {"default", answer(errWebhook), lastRetry, false},
		"503":                    {"bad", answer(apierrors.NewServiceUnavailable("down")), time.Second, false},
		"504":                    {"bad", answer(apierrors.NewTimeoutError("slow", 0)), time.Second, false},
		"Retry-After":            {"bad", answer(apierrors.NewTooManyRequests("slow down", 1)), 15 * time.Minute, true},
		"silence": {"bad", func(_ *apitest.Server, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			15 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
				var failed atomic.Int64
				fault := func(w http.ResponseWriter, r *http.Request) bool {
					body, err := io.ReadAll(r.Body)
					r.Body = io.NopCloser(bytes.NewReader(body))
					if err != nil || !bytes.Contains(body, []byte("BadReason")) {
						return false
					}
					failed.Add(1)
					c.answer(s, w, r)
					return true
				}
				s.Fault.Store(&fault)
				const bad = 10
				for n := range bad {
					p := bound(fmt.Sprint("bad", n))
					p.Namespace, p.UID = c.namespace, types.UID(p.Name)
					e.Pod(p, "", v1.EventTypeWarning, "BadReason", "")
				}
				for n := range 60 {
					p := bound(fmt.Sprint("good", n))
					p.UID = types.UID(p.Name)
					e.Pod(p, "", v1.EventTypeNormal, "Started", "")
					time.Sleep(c.within)
					if got := len(s.Events()); n > 0 && got != n+1 {
						t.Errorf("%d of %d other events were sent after %s", got, n+1, c.within)
						break
					}
					time.Sleep(5 * time.Minute)
				}
				if c.kept {
					if n := failed.Load() / (60 * 5); n > 3*11 { // after a Retry-After, the client sends a request up to eleven times
						t.Errorf("%d attempts a minute", n)
					}
					s.Fault.Store(nil)
					time.Sleep(5 * time.Minute)
					if n := len(s.Events()); n != 60+bad || e.Dropped() != 0 {
						t.Errorf("%d events arrived, %d were given up", n, e.Dropped())
					}
					return
				}
				if n := failed.Load(); n > 3*bad*(maxTries+1) {
					t.Errorf("%d attempts", n)
				}
				if n := e.Dropped(); n != bad {
					t.Errorf("%d events were given up after %d attempts", n, failed.Load())
				}
				before := failed.Load()
				time.Sleep(24 * time.Hour)
				if n := failed.Load() - before; n != 0 {
					t.Errorf("%d attempts after they were given up", n)
				}
			})
		})
	}
}

// TestEventsOutliveErrors checks that no event is given up because the server answers all requests with an error, or because it answers
// two of three requests with an error after that. It also checks that the number of requests during the outage does not depend on the
// number of events and namespaces, or on changes of the link.
func TestEventsOutliveErrors(t *testing.T) {
	for name, err := range map[string]error{
		"500": apierrors.NewInternalError(errors.New("etcdserver: request timed out")), "429": apierrors.NewTooManyRequests("slow down", 1),
	} {
		t.Run(name, func(t *testing.T) {
			recording(t, 50, 100, func(s *apitest.Server, e *Events, retry chan<- struct{}) {
				var total, passing atomic.Int64
				passing.Store(1 << 60) // one of this number of requests is answered
				fault := func(w http.ResponseWriter, r *http.Request) bool {
					if total.Add(1)%passing.Load() == 0 {
						return false
					}
					s.WriteError(w, r, err)
					return true
				}
				s.Fault.Store(&fault)
				const events, namespaces = 100, 10
				for n := range events {
					p := bound(fmt.Sprint("p", n))
					p.Namespace, p.UID = fmt.Sprint("ns", n%namespaces), types.UID(p.Name)
					e.Pod(p, "", v1.EventTypeNormal, "Started", "")
				}
				time.Sleep(time.Hour)
				total.Store(0)
				const hours = 4
				for range hours * 6 {
					retry <- struct{}{} // the link was down for a moment
					time.Sleep(10 * time.Minute)
				}
				if n := total.Load() / (hours * 60); name == "500" && n > 3 {
					t.Errorf("%d requests a minute", n)
				}
				passing.Store(3)
				retry <- struct{}{} // the link is up again
				time.Sleep(time.Hour)
				if n := len(s.Events()); n != events || e.Dropped() != 0 {
					t.Errorf("%d events arrived, %d were given up", n, e.Dropped())
				}
			})
		})
	}
}

// TestRepetitionsOfRefusedEvents checks that an event that was given up is counted once, however often it occurs again, and once more if
// the server has accepted it meanwhile.
func TestRepetitionsOfRefusedEvents(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
		var failed atomic.Int64
		fault := func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/namespaces/bad/") {
				return false
			}
			failed.Add(1)
			s.WriteError(w, r, errWebhook)
			return true
		}
		good, bad := bound("good"), bound("bad")
		good.UID, bad.UID, bad.Namespace = "good", "bad", "bad"
		repeat := func(times int) {
			for n := range times {
				e.Pod(good, "", v1.EventTypeNormal, "Started", fmt.Sprint(n))
				synctest.Wait() // until the server has accepted an event, the failure of another one does not count
				e.Pod(bad, "", v1.EventTypeWarning, "BackOff", "")
				time.Sleep(6 * time.Minute)
			}
		}
		for round := range 2 {
			s.Fault.Store(&fault)
			repeat(2 * maxTries)
			failed.Store(0)
			repeat(100)
			if n := e.Dropped(); n != round+1 {
				t.Errorf("round %d: %d events were given up", round, n)
			}
			if n := failed.Load(); n != 100 {
				t.Errorf("round %d: %d attempts for 100 repetitions", round, n)
			}
			s.Fault.Store(nil)
			repeat(1)
			if all := s.Events(); !slices.ContainsFunc(all, func(ev *v1.Event) bool { return ev.InvolvedObject.Name == "bad" }) {
				t.Errorf("round %d: the event is not sent when the server accepts it", round)
			}
		}
	})
}

// TestStatusesThatFail checks that pods whose status the server never stores do not delay the statuses of other pods, that few requests are
// sent for them, and that their statuses are sent when the server stores them again.
func TestStatusesThatFail(t *testing.T) {
	in(t, func(w *world) {
		const bad, good = 20, 5
		var pods []*v1.Pod
		for n := range bad + good {
			pods = append(pods, w.bind(fmt.Sprint([]string{"bad", "good"}[n/bad], n)))
			w.box.Put(pods[n], status(v1.PodRunning, ""))
		}
		time.Sleep(time.Minute)
		var failed atomic.Int64
		fault := func(rw http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/pods/bad") {
				return false
			}
			failed.Add(1)
			select { // the webhook does not answer
			case <-time.After(10 * time.Second):
			case <-r.Context().Done():
			}
			w.WriteError(rw, r, errWebhook)
			return true
		}
		w.Fault.Store(&fault)
		for n := range bad {
			w.box.Put(pods[n], status(v1.PodFailed, "bad"))
		}
		time.Sleep(5 * time.Minute)
		failed.Store(0)
		for round := range 100 {
			n := bad + round%good
			phase := []v1.PodPhase{v1.PodFailed, v1.PodRunning}[round/good%2] // a change of the phase is sent at once
			w.box.Put(pods[n], status(phase, fmt.Sprint(round)))
			time.Sleep(2 * time.Second)
			if got := w.shown(pods[n].Name); got != fmt.Sprint(phase, " ", round) {
				t.Errorf("round %d: %s", round, got)
			}
			time.Sleep(time.Minute)
		}
		if n := failed.Load() / 100; n > 5 {
			t.Errorf("%d requests a minute for pods whose status is not stored", n)
		}
		w.Fault.Store(nil)
		time.Sleep(3 * time.Minute)
		for n := range bad {
			if got := w.shown(pods[n].Name); got != "Failed bad" {
				t.Error(n, got)
			}
		}
	})
}

// bindIn is like bind, for a namespace.
func (w *world) bindIn(namespace, name string) *v1.Pod {
	w.Helper()
	p := bound(name)
	p.Namespace = namespace
	w.Put(p)
	synctest.Wait()
	got, ok := w.wanted.Get(w.Pod(namespace, name).UID)
	if !ok {
		w.Fatal("the node did not receive", name)
	}
	return got.Pod
}

// TestStatusesDuringErrors checks that the number of requests is limited while the server answers all requests with an error, for many pods
// of one or several namespaces that change again and again, also if the link changes. All statuses are sent after that.
func TestStatusesDuringErrors(t *testing.T) {
	for _, namespaces := range []int{1, 10} {
		t.Run(fmt.Sprint(namespaces), func(t *testing.T) { changeDuringErrors(t, namespaces) })
	}
}

func changeDuringErrors(t *testing.T, namespaces int) {
	in(t, func(w *world) {
		const many = 100
		var pods []*v1.Pod
		for n := range many {
			pods = append(pods, w.bindIn(fmt.Sprint("ns", n%namespaces), fmt.Sprint("p", n)))
			w.box.Put(pods[n], status(v1.PodRunning, ""))
		}
		time.Sleep(time.Minute)
		w.fail(apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
		before, began := w.patches(), time.Now()
		for _, period := range []time.Duration{time.Minute, time.Hour, 4 * time.Hour} {
			for time.Since(began) < period {
				for n := range many {
					w.box.Put(pods[n], status([]v1.PodPhase{v1.PodFailed, v1.PodRunning}[rand.N(2)], time.Now().String()))
				}
				time.Sleep(10 * time.Second)
				if time.Since(began).Minutes() == time.Since(began).Truncate(10*time.Minute).Minutes() {
					w.retry <- struct{}{}
				}
			}
			most := 6 * int(period/time.Minute)
			if period == time.Minute {
				most = 40
			}
			if n := w.patches() - before; n > most {
				t.Errorf("%d requests in %s", n, period)
			}
		}
		for n := range many {
			w.box.Put(pods[n], status(v1.PodRunning, "last"))
		}
		w.Fault.Store(nil)
		time.Sleep(2 * time.Minute)
		for _, p := range pods {
			if s := w.Pod(p.Namespace, p.Name).Status; s.Message != "last" {
				t.Error(p.Name, s.Phase, s.Message)
			}
		}
	})
}

// TestOtherNamespacesOfStatuses checks that pods of a namespace whose webhook does not answer delay the statuses of other namespaces only
// until the first requests have failed, and that a pod for which the server has failed once does not wait for all pods of that namespace.
func TestOtherNamespacesOfStatuses(t *testing.T) {
	in(t, func(w *world) {
		const bad, hang = 40, 25 * time.Second
		var pods []*v1.Pod
		for n := range bad {
			pods = append(pods, w.bindIn("bad", fmt.Sprint("bad", n)))
			w.box.Put(pods[n], status(v1.PodRunning, ""))
		}
		good, once := w.bindIn("good", "good"), w.bindIn("other", "once")
		for _, p := range []*v1.Pod{good, once} {
			w.box.Put(p, status(v1.PodRunning, ""))
		}
		time.Sleep(time.Minute)
		var fails atomic.Bool
		fault := func(rw http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.Contains(r.URL.Path, "/namespaces/bad/"):
				select { // the webhook does not answer
				case <-time.After(hang):
				case <-r.Context().Done():
				}
			case !strings.Contains(r.URL.Path, "/pods/once") || !fails.Swap(false):
				return false
			}
			w.WriteError(rw, r, errWebhook)
			return true
		}
		w.Fault.Store(&fault)
		for n := range bad {
			w.box.Put(pods[n], status(v1.PodFailed, ""))
		}
		time.Sleep(hang + time.Second)
		for round := range 60 {
			message := fmt.Sprint(round)
			w.box.Put(good, status([]v1.PodPhase{v1.PodFailed, v1.PodRunning}[round%2], message))
			time.Sleep(2 * time.Second)
			if got := w.Pod("good", "good").Status.Message; got != message {
				t.Errorf("round %d: the status of another namespace is %q", round, got)
			}
			time.Sleep(20 * time.Second)
		}
		for round := range 10 {
			fails.Store(true)
			message := fmt.Sprint(round)
			w.box.Put(once, status([]v1.PodPhase{v1.PodFailed, v1.PodRunning}[round%2], message))
			time.Sleep(hang + 2*lastRetry + 5*time.Second) // a hold, another attempt in the namespace bad, and another hold
			if got := w.Pod("other", "once").Status.Message; got != message {
				t.Errorf("round %d: the status of a pod that has failed once is %q", round, got)
			}
		}
		w.Fault.Store(nil)
		time.Sleep(hang) // until no request waits
	})
}

// TestRefusalAfterErrors checks that a status is sent soon if the first answer of a server that has failed for a long time is a refusal.
func TestRefusalAfterErrors(t *testing.T) {
	in(t, func(w *world) {
		p := w.bind("p")
		w.fail(errWebhook)
		w.box.Put(p, status(v1.PodFailed, "news"))
		time.Sleep(5*time.Minute + time.Second/2) // between two attempts: they are 15 s apart, at multiples of 15 s
		w.fail(apierrors.NewForbidden(v1.Resource("pods"), "p", nil))
		for before := w.patches(); w.patches() == before; {
			time.Sleep(time.Second)
		}
		w.fail(nil)
		time.Sleep(2 * time.Second)
		if got := w.shown("p"); got != "Failed news" {
			t.Error(got)
		}
	})
}

// TestLinkAfterErrors checks that a status that has failed is sent at once when the link is up again, and otherwise soon after the server
// stores statuses again.
func TestLinkAfterErrors(t *testing.T) {
	for name, isUpAgain := range map[string]bool{"link": true, "server": false} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				p, most := w.bind("p"), 2*maxOwnRetry+time.Second // the delay of the status, and the hold
				w.fail(errWebhook)
				w.box.Put(p, status(v1.PodFailed, "news"))
				time.Sleep(65 * time.Second)
				w.fail(nil)
				if isUpAgain {
					w.retry <- struct{}{}
					most = time.Second
				}
				time.Sleep(most)
				if got := w.shown("p"); got != "Failed news" {
					t.Error(got)
				}
			})
		})
	}
}

// TestFailureOfADeletedPod checks that a failure is not remembered after its pod is gone, because the next outage would not be logged.
func TestFailureOfADeletedPod(t *testing.T) {
	var h holds
	now := time.Now()
	for _, isFirst := range []bool{true, false} {
		if h.hasFailed(now) == isFirst {
			t.Error("wrong before the failure", isFirst)
		}
		h.fail("a", isFirst, now)
	}
	if !h.hasFailed(now.Add(lastRetry)) || h.hasFailed(now.Add(time.Hour)) {
		t.Error("the failure is forgotten at once, or never")
	}
}

// TestAttemptsAreNoFailures checks that attempts without an answer, such as those during an outage, do not prolong the back-off of an
// earlier failure.
func TestAttemptsAreNoFailures(t *testing.T) {
	for _, isFirst := range []bool{true, false} {
		o := &Outbox{}
		now := time.Now()
		o.holds.fail("a", isFirst, now)
		it := &item{}
		it.name.Namespace = "a"
		if !isFirst {
			it.failures = 1
		}
		for range 3 * 60 { // minutes
			now = now.Add(time.Minute)
			turn := &turn{o: o, now: now}
			turn.addItem(it)
			if h := turn.holdOf(it); h != nil {
				h.end(now)
			}
		}
		if o.holds.hasFailed(now) {
			t.Errorf("first: %v: the failure before the outage belongs to this one", isFirst)
		}
		o.holds.fail("a", isFirst, now)
		if wait := o.holds.until("a", !isFirst, now).Sub(now); wait > 2*firstRetry {
			t.Errorf("first: %v: the first failure of this outage delays by %v", isFirst, wait)
		}
	}
}
