package outbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
)

// errWebhook is the error of a webhook that cannot be called.
var errWebhook = apierrors.NewInternalError(errors.New("failed calling webhook \"events.example.com\": no endpoints available"))

// TestEventsThatFail checks that events that the server never stores do not block other events, and that they are given up. The events have
// a namespace of their own, or the namespace of the others.
func TestEventsThatFail(t *testing.T) {
	answer := func(err error) func(*apitest.Server, http.ResponseWriter, *http.Request) {
		return func(s *apitest.Server, w http.ResponseWriter, r *http.Request) { s.WriteError(w, r, err) }
	}
	for name, c := range map[string]struct {
		namespace string
		answer    func(s *apitest.Server, w http.ResponseWriter, r *http.Request)
		within    time.Duration // maximum delay of other events
	}{
		"webhook of a namespace": {"bad", answer(errWebhook), time.Second},
		"webhook of one event":   {"default", answer(errWebhook), lastRetry},
		"503":                    {"bad", answer(apierrors.NewServiceUnavailable("down")), time.Second},
		"504":                    {"bad", answer(apierrors.NewTimeoutError("slow", 0)), time.Second},
		"Retry-After":            {"bad", answer(apierrors.NewTooManyRequests("slow down", 1)), 15 * time.Minute},
		"silence": {"bad", func(_ *apitest.Server, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			15 * time.Minute},
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
				if n := failed.Load(); n > 3*bad*(maxTries+1) { // a Retry-After causes further attempts in the client
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

// TestEventsOutliveErrors checks that no event is given up while the server answers all requests with an error, and that the number of
// requests is limited meanwhile.
func TestEventsOutliveErrors(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, retry chan<- struct{}) {
		broken := func(w http.ResponseWriter, r *http.Request) bool {
			s.WriteError(w, r, apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
			return true
		}
		s.Fault.Store(&broken)
		const events, namespaces = 100, 5
		for n := range events {
			p := bound(fmt.Sprint("p", n))
			p.Namespace, p.UID = fmt.Sprint("ns", n%namespaces), types.UID(p.Name)
			e.Pod(p, "", v1.EventTypeNormal, "Started", "")
		}
		time.Sleep(time.Hour)
		before := s.Total()
		time.Sleep(4 * time.Hour)
		if n := (s.Total() - before) / (4 * 60); n > 3*namespaces {
			t.Errorf("%d requests a minute", n)
		}
		s.Fault.Store(nil)
		retry <- struct{}{} // the link is up again
		time.Sleep(time.Minute)
		if n := len(s.Events()); n != events || e.Dropped() != 0 {
			t.Errorf("%d events arrived, %d were given up", n, e.Dropped())
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
