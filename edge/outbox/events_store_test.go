package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podtest"
)

// A recorder contains an Events that a test can restart. Its store counts the writes.
type recorder struct {
	*testing.T
	*apitest.Server
	*Events
	path   string
	alone  bool
	spare  atomic.Bool // the result of SaveWrites
	writes atomic.Int64
	stop   func()
}

// A countingStore counts write transactions.
type countingStore struct {
	*store.Store
	r *recorder
}

func (c countingStore) UpdateEvents(ctx context.Context, put []store.Event, remove []string) error {
	c.r.writes.Add(1)
	return c.Store.UpdateEvents(ctx, put, remove)
}

func recorded(t *testing.T, alone bool, test func(r *recorder)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "islet.db")
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{T: t, Server: apitest.New(t), path: path, alone: alone}
		r.start()
		defer func() { r.stop() }()
		test(r)
	})
}

func (r *recorder) start() {
	r.Helper()
	db, err := store.Open(r.Context(), r.path, slog.New(slog.DiscardHandler))
	if err != nil {
		r.T.Fatal(err)
	}
	c := EventsConfig{Node: "n", QPS: 50, Burst: 100, Store: countingStore{db, r}, SaveWrites: r.spare.Load, Log: slog.New(slog.DiscardHandler)}
	closing := func() {}
	if !r.alone {
		c.Client = r.Client(r.T)
		closing = c.Client.CloseConnections
	}
	if r.Events, err = NewEvents(c); err != nil {
		r.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	ended := make(chan error)
	go func() { ended <- r.Events.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			r.Error(err)
		}
		closing()
		if err := db.Close(); err != nil {
			r.Error(err)
		}
		r.stop = func() {}
	}
}

func podNamed(name string) *v1.Pod {
	return podtest.New(name, podtest.UID("u"))
}

func TestEventsOutliveTheAgent(t *testing.T) {
	recorded(t, false, func(r *recorder) {
		r.Disconnect()
		p := podNamed("a")
		first := time.Now().Truncate(time.Second)
		for range 3 {
			r.Events.Pod(p, "", v1.EventTypeWarning, "BackOff", "again")
			time.Sleep(time.Minute)
		}
		r.Events.Pod(p, "", v1.EventTypeNormal, "Pulled", "done")
		last := first.Add(2 * time.Minute)
		r.stop()
		time.Sleep(time.Hour) // the machine is off
		r.start()
		r.Events.Pod(p, "", v1.EventTypeNormal, "Started", "new")
		if got := r.Recent("u"); len(got) != 3 || got[0].Count != 3 || got[0].Reason != "BackOff" {
			t.Errorf("%+v", got)
		}
		r.Reconnect()
		time.Sleep(2 * time.Minute)
		all := map[string]*v1.Event{}
		for _, e := range r.Server.Events() {
			all[e.Reason] = e
		}
		if b := all["BackOff"]; len(all) != 3 || b == nil || b.Count != 3 || !b.FirstTimestamp.Time.Equal(first) ||
			!b.LastTimestamp.Time.Equal(last) {
			t.Errorf("%d events, %+v", len(all), all["BackOff"])
		}
		before := r.Total()
		r.stop()
		r.start()
		time.Sleep(10 * time.Minute)
		if n := r.Total() - before; n != 0 {
			t.Errorf("%d requests for events that were sent", n)
		}
		if got := r.Recent("u"); len(got) != 1 || got[0].Reason != "BackOff" {
			t.Errorf("of the sent events, only warnings must be stored: %+v", got)
		}
		r.Events.Pod(p, "", v1.EventTypeWarning, "BackOff", "again")
		time.Sleep(time.Minute)
		for _, e := range r.Server.Events() {
			if e.Reason == "BackOff" && e.Count != 4 {
				t.Errorf("an existing event is created again: %+v", e)
			}
		}
	})
}

// TestToldBeforeItWasNoted checks that an event that was sent before the agent was killed is not sent twice.
func TestToldBeforeItWasNoted(t *testing.T) {
	recorded(t, false, func(r *recorder) {
		r.Disconnect()
		r.Events.Pod(podNamed("a"), "", v1.EventTypeWarning, "BackOff", "again")
		time.Sleep(time.Minute) // the event is stored
		e := r.Recent("u")[0]
		r.Reconnect()
		time.Sleep(time.Minute)
		if n := len(r.Server.Events()); n != 1 {
			t.Fatalf("%d events", n)
		}
		again := recordOf(&e)
		again.count = 7
		if err := r.send(r.Context(), again); err != nil {
			t.Error(err)
		}
		if all := r.Server.Events(); len(all) != 1 || all[0].Count != 7 {
			t.Errorf("%+v", all)
		}
	})
}

// TestEventsWearNoFlash checks that events that are sent soon are not written to the disk. A burst of events must be one write. An idle
// node must write nothing.
func TestEventsWearNoFlash(t *testing.T) {
	recorded(t, false, func(r *recorder) {
		for i := range 50 {
			r.Events.Pod(podNamed(fmt.Sprint("p", i)), "", v1.EventTypeNormal, "Started", fmt.Sprint(i))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Hour)
		if r.writes.Load() != 0 {
			t.Errorf("%d writes of events that were sent", r.writes.Load())
		}
		r.Disconnect()
		for i := range 300 {
			r.Events.Pod(podNamed(fmt.Sprint("q", i)), "", v1.EventTypeNormal, "Started", fmt.Sprint(i))
		}
		time.Sleep(time.Hour)
		if r.writes.Load() != 1 {
			t.Errorf("%d writes of one burst", r.writes.Load())
		}
		for range 600 {
			r.Events.Pod(podNamed("a"), "", v1.EventTypeWarning, "BackOff", "again")
			time.Sleep(time.Second)
		}
		if r.writes.Load() > 12 {
			t.Errorf("%d writes in ten minutes", r.writes.Load())
		}
	})
}

// TestEventsSpareTheDisk checks that events are written every half hour while SaveWrites returns true. While SaveWrites returns false, they
// are written at the usual interval. They are also written when the agent ends.
func TestEventsSpareTheDisk(t *testing.T) {
	recorded(t, true, func(r *recorder) {
		happens := func(minutes int) (writes int64) {
			before := r.writes.Load()
			for range 4 * minutes {
				r.Events.Pod(podNamed("a"), "", v1.EventTypeWarning, "BackOff", "again")
				time.Sleep(15 * time.Second)
			}
			return r.writes.Load() - before
		}
		kept := func() int32 {
			rows, err := r.Store.Events(r.Context())
			if err != nil || len(rows) != 1 {
				r.Fatalf("%d rows: %v", len(rows), err)
			}
			return rows[0].Event.Count
		}
		if n := happens(10); n != 10 {
			t.Errorf("%d writes in ten minutes", n)
		}
		r.spare.Store(true)
		before := kept()
		if n := happens(25); n > 1 || kept() > before+8 {
			t.Errorf("%d writes in 25 minutes, the count went from %d to %d", n, before, kept())
		}
		if n := happens(120); n != 4 {
			t.Errorf("%d writes in two hours", n)
		}
		r.spare.Store(false)
		happens(30) // the waiting events are stored
		if n := happens(10); n != 10 {
			t.Errorf("%d writes in ten minutes after", n)
		}
		r.spare.Store(true)
		happens(5)
		r.stop()
		r.start()
		if n := kept(); n != 4*(10+25+120+30+10+5) {
			t.Errorf("%d of them outlive the agent", n)
		}
	})
}

func TestStoredEventsAreBounded(t *testing.T) {
	recorded(t, false, func(r *recorder) {
		r.Disconnect()
		for i := range maxEvents + 40 {
			if i == maxEvents {
				time.Sleep(time.Minute) // the previous events are stored
			}
			p := podNamed(fmt.Sprint("p", i))
			p.UID = types.UID(p.Name)
			r.Events.Pod(p, "", v1.EventTypeWarning, "Failed", fmt.Sprint(i))
		}
		if n := len(r.All()); n != maxEvents || r.Dropped() != 40 {
			t.Errorf("%d kept, %d dropped", n, r.Dropped())
		}
		r.stop()
		r.start()
		all := r.All()
		if len(all) > maxEvents || all[len(all)-1].Count < 1 {
			t.Errorf("%d after a restart", len(all))
		}
		rows, err := r.Store.Events(r.Context())
		if err != nil || len(rows) != len(all) {
			t.Errorf("%d rows for %d events: %v", len(rows), len(all), err)
		}
	})
}

// TestEventsOfANodeAlone checks a node without a cluster. Its normal events are written when the agent ends, and its warnings after a
// short delay.
func TestEventsOfANodeAlone(t *testing.T) {
	recorded(t, true, func(r *recorder) {
		r.Events.Pod(podNamed("a"), "", v1.EventTypeNormal, "Started", "x")
		time.Sleep(time.Hour)
		if n := r.writes.Load(); n != 0 {
			t.Errorf("%d writes for normal events", n)
		}
		r.Events.Pod(podNamed("b"), "", v1.EventTypeWarning, "Failed", "x")
		time.Sleep(2 * storeEvery)
		if n := r.writes.Load(); n != 1 {
			t.Errorf("%d writes of a warning", n)
		}
		r.stop()
		r.start()
		if got := r.Recent("u"); len(got) != 2 || got[0].Reason != "Started" || got[1].Reason != "Failed" {
			t.Errorf("%+v", got)
		}
		if r.Dropped() != 0 {
			t.Error("events were dropped")
		}
	})
}

// TestEventIsKeptWhole checks that the API server and the store get all fields of an event.
func TestEventIsKeptWhole(t *testing.T) {
	e := &Events{EventsConfig: EventsConfig{Node: "pi"}}
	at := metav1.Unix(1700000000, 0)
	for namespace, want := range map[string]string{"shop": "shop", "": "default"} {
		ev := &v1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: want, Name: "a.17", Annotations: map[string]string{"note": "x"}},
			InvolvedObject: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "a", UID: "u",
				FieldPath: "spec.containers{c}"},
			Type: v1.EventTypeWarning, Reason: "BackOff", Message: "again", Count: 3, FirstTimestamp: at,
			LastTimestamp: metav1.Unix(1700000060, 0),
			Source:        v1.EventSource{Component: "kubelet", Host: "pi"}, ReportingController: "kubelet", ReportingInstance: "pi",
		}
		if got := e.toEvent(recordOf(ev)); !reflect.DeepEqual(got, ev) {
			t.Errorf("%+v, want %+v", got, ev)
		}
	}
}
