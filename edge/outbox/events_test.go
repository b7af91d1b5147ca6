package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/keys"
)

func recording(t *testing.T, qps float64, burst int, test func(s *apitest.Server, e *Events, retry chan<- struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, retry := apitest.New(t), make(chan struct{}, 1)
		e, err := NewEvents(EventsConfig{Client: s.Client(t), Node: "n", QPS: qps, Burst: burst, Retry: kube.LinkSignal{C: retry},
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		test(s, e, retry)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestEventsAreAKubelets(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
		p := bound("a")
		p.UID = "u"
		e.Pod(p, "c", v1.EventTypeNormal, "Pulled", "done")
		e.Node(v1.EventTypeNormal, "NodeReady", "ready")
		synctest.Wait()
		all := s.Events()
		if len(all) != 2 {
			t.Fatal(all)
		}
		for _, ev := range all {
			switch o := ev.InvolvedObject; o.Kind {
			case "Pod":
				if ev.Namespace != "default" || o.UID != "u" || o.FieldPath != "spec.containers{c}" ||
					ev.Source != (v1.EventSource{Component: "kubelet", Host: "n"}) ||
					ev.Reason != "Pulled" || ev.Message != "done" || ev.Count != 1 || ev.ReportingController != "kubelet" ||
					ev.ReportingInstance != "n" {
					t.Errorf("%+v", ev)
				}
			case "Node":
				if ev.Namespace != "default" || o.UID != "n" || o.Name != "n" {
					t.Errorf("%+v", ev)
				}
			}
		}
	})
}

// TestNodeUID checks that an event of the node has the UID of the Node object, or the node's name until the UID is known.
func TestNodeUID(t *testing.T) {
	known := types.UID("")
	e, err := NewEvents(EventsConfig{Node: "n", NodeUID: func() types.UID { return known }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e.Node(v1.EventTypeNormal, "Starting", "soon")
	known = "uid-of-node"
	e.Node(v1.EventTypeNormal, "NodeReady", "ready")
	got := map[string]types.UID{}
	for _, ev := range e.All() {
		got[ev.Reason] = ev.InvolvedObject.UID
	}
	if n := len(e.RecentNode()); n != 2 {
		t.Errorf("%d events of the node", n)
	}
	if got["Starting"] != "n" || got["NodeReady"] != "uid-of-node" || len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// TestEventsWithoutLimit checks that eventRecordQPS: 0 means no limit, and not that no event is sent.
func TestEventsWithoutLimit(t *testing.T) {
	const count = 200
	for qps, want := range map[float64]int{0: count, 1: 1} {
		recording(t, qps, 1, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
			for i := range count {
				p := bound(fmt.Sprint("p", i))
				p.UID = types.UID(p.Name)
				e.Pod(p, "c", v1.EventTypeWarning, "Failed", "no such image")
			}
			synctest.Wait() // no time passes
			if n := len(s.Events()); n != want {
				t.Errorf("eventRecordQPS %v: %d events were sent at once, not %d", qps, n, want)
			}
		})
	}
}

func TestRepeatedEventsAreCounted(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
		p := bound("a")
		p.UID = "u"
		for range 20 {
			e.Pod(p, "c", v1.EventTypeWarning, "BackOff", "Back-off restarting")
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		if all := s.Events(); len(all) != 1 || all[0].Count != 20 {
			t.Errorf("%+v", all)
		}
		if n := s.Requests("PATCH events"); n > 6 {
			t.Errorf("%d patches", n)
		}
		if r := e.Recent("u"); len(r) != 1 || r[0].Count != 20 || len(e.Recent("v")) != 0 {
			t.Errorf("%+v", r)
		}
		s.Remove(s.Events()[0]) // as the server does after an hour
		e.Pod(p, "c", v1.EventTypeWarning, "BackOff", "Back-off restarting")
		time.Sleep(10 * time.Second)
		if all := s.Events(); len(all) != 1 || all[0].Count != 21 {
			t.Errorf("%+v", all)
		}
	})
}

// TestEventsAreBounded checks that the number of events is limited for a pod with many events. The events of other pods must still be
// sent.
func TestEventsAreBounded(t *testing.T) {
	recording(t, 5, 10, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
		loud, calm := bound("loud"), bound("calm")
		loud.UID, calm.UID = "l", "c"
		for i := range 1000 {
			e.Pod(loud, "", v1.EventTypeWarning, "FailedMount", fmt.Sprint("try ", i))
		}
		e.Pod(calm, "", v1.EventTypeNormal, "Started", "")
		time.Sleep(5 * time.Minute)
		all := s.Events()
		if len(all) > 12 {
			t.Errorf("%d events", len(all))
		}
		found := false
		for _, ev := range all {
			found = found || ev.InvolvedObject.Name == "calm"
		}
		if !found {
			t.Error("no event of the pod calm was sent")
		}
		for i := range 3 * maxEvents {
			e.Pod(loud, "", v1.EventTypeWarning, fmt.Sprint("Reason", i), "")
		}
		if len(e.records) > maxEvents || len(e.Recent("l")) > recentEvents {
			t.Error(len(e.records))
		}
		if indexed := slices.Concat(e.byObject["l"], e.byObject["c"]); !slices.Equal(indexed, e.records) ||
			len(e.byObject) != 1 { // the oldest events belonged to the other pod
			t.Errorf("by object: %d of %d events, %d objects", len(indexed), len(e.records), len(e.byObject))
		}
	})
}

func TestEventsOutliveAnOutage(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, retry chan<- struct{}) {
		p := bound("a")
		p.UID = "u"
		s.Disconnect()
		for i := range 10 {
			e.Pod(p, "", v1.EventTypeNormal, fmt.Sprint("R", i%5), "")
		}
		time.Sleep(time.Hour)
		s.Reconnect()
		retry <- struct{}{}
		synctest.Wait()
		if all := s.Events(); len(all) != 5 || all[0].Count != 2 {
			t.Errorf("%+v", all)
		}
		broken := func(w http.ResponseWriter, r *http.Request) bool {
			s.WriteError(w, r, apierrors.NewInternalError(errors.New("broken")))
			return true
		}
		s.Fault.Store(&broken)
		e.Pod(p, "", v1.EventTypeNormal, "Later", "")
		time.Sleep(time.Minute)
		before := s.Total()
		time.Sleep(10 * time.Minute)
		if n := (s.Total() - before) / 10; n > 10 {
			t.Errorf("%d requests a minute", n)
		}
	})
}

// TestEventsOfADeletedNamespaceAreDropped checks that a rejected event is not sent again. The API server rejects events in a namespace
// that is being deleted or was deleted.
func TestEventsOfADeletedNamespaceAreDropped(t *testing.T) {
	for _, err := range []error{
		apierrors.NewForbidden(v1.Resource("events"), "x", errors.New("unable to create new content in namespace default because it is being terminated")),
		apierrors.NewNotFound(v1.Resource("namespaces"), "default"),
	} {
		recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
			refuse := func(w http.ResponseWriter, r *http.Request) bool { s.WriteError(w, r, err); return true }
			s.Fault.Store(&refuse)
			p := bound("a")
			p.UID = "u"
			for i := range 5 {
				e.Pod(p, "", v1.EventTypeNormal, fmt.Sprint("R", i), "")
			}
			time.Sleep(time.Hour)
			if n := s.Total(); n != 5 {
				t.Errorf("%d requests", n)
			}
			e.Pod(p, "", v1.EventTypeNormal, "R0", "") // a repeated event
			time.Sleep(time.Hour)
			if n := s.Total(); n > 7 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestDocumentedLimits compares the numbers in docs/offline.md with the limits.
func TestDocumentedLimits(t *testing.T) {
	page, err := os.ReadFile("../../docs/offline.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("shows the last %d events", maxEvents), fmt.Sprintf("shows the last %d of the pod", recentEvents),
		fmt.Sprintf("of the last %d minutes while [flashBudget]", storeSeldom/time.Minute),
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/offline.md does not say: %s", want)
		}
	}
	if storeEvery != time.Minute { // the page says "of the last minute"
		t.Errorf("events are stored every %v", storeEvery)
	}
}

// TestEventsOfMirrorPods checks that the events of a static pod refer to its mirror pod at the API server, also after a restart of the
// agent, and to the pod's own name on this node.
func TestEventsOfMirrorPods(t *testing.T) {
	for source, want := range map[string]string{keys.SourceLocal: "web.n", keys.SourceBundle: "web.n", keys.SourceFile: "web", keys.SourceAPI: "web"} {
		recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
			p, annotations := bound("web"), map[string]string{"a": "b"}
			p.UID, p.Annotations = "u", map[string]string{keys.ConfigSource: source}
			e.Pod(p, "", v1.EventTypeNormal, "Pulled", "done")
			e.PodWith(annotations, p, v1.EventTypeNormal, "Killing", "done")
			time.Sleep(time.Minute)
			local := e.All()
			if len(s.Events()) != 2 || len(local) != 2 || len(annotations) != 1 {
				t.Fatal(s.Events(), local, annotations)
			}
			for i := range local {
				ev := e.eventForServer(recordOf(&local[i])) // the event is stored as it is on this node
				if ev.InvolvedObject.Name != want || local[i].InvolvedObject.Name != "web" {
					t.Errorf("%s: %+v, on this node %+v", source, ev, local[i])
				}
			}
			for _, ev := range s.Events() {
				if ev.InvolvedObject.Name != want || ev.Annotations[keys.MirrorName] != "" {
					t.Errorf("%s: %+v", source, ev)
				}
			}
		})
	}
}
