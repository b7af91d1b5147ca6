package outbox

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/apitest"
	"github.com/islet-edge/islet/edge/store"
)

// begin records the events of pods that start one after the other.
func begin(e *Events, from, pods int, every time.Duration) {
	for i := range pods {
		p := podNamed(fmt.Sprint("p", from+i))
		p.UID = types.UID(p.Name)
		for _, reason := range []string{"Pulled", "Created", "Started"} {
			e.Pod(p, "c", v1.EventTypeNormal, reason, "x")
		}
		time.Sleep(every)
	}
}

// TestEventsGiveWay checks that the events of starting pods are delayed while many pods start. Warnings are not delayed.
func TestEventsGiveWay(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
		begin(e, 0, 5, 0)
		synctest.Wait()
		if n := len(s.Events()); n != 15 {
			t.Errorf("%d of 15 events of few pods were sent immediately", n)
		}
		begin(e, 5, 200, 40*time.Millisecond)
		if n := len(s.Events()); n > 15+calmEvents {
			t.Errorf("%d events were sent while pods started", n)
		}
		e.Pod(podNamed("w"), "", v1.EventTypeWarning, "BackOff", "again")
		synctest.Wait()
		warned := false
		for _, ev := range s.Events() {
			warned = warned || ev.Reason == "BackOff"
		}
		if !warned {
			t.Error("a warning waits, too")
		}
		time.Sleep(rushWindow + 15*time.Second)
		if n := len(s.Events()); n != 15+600+1 || e.Dropped() != 0 {
			t.Errorf("%d events, %d dropped", n, e.Dropped())
		}
	})
}

// TestEventsGiveWayForAWhile checks that events are not delayed indefinitely if pods keep starting.
func TestEventsGiveWayForAWhile(t *testing.T) {
	recording(t, 50, 100, func(s *apitest.Server, e *Events, _ chan<- struct{}) {
		begin(e, 0, 120, maxEventDelay/60)
		if n := len(s.Events()); n < 150 {
			t.Errorf("%d of 360 events were sent after %v", n, 2*maxEventDelay)
		}
	})
}

// TestEventsThatGiveWayWearNoFlash checks that a delayed event is written to the disk only if the agent ends before the event is sent.
func TestEventsThatGiveWayWearNoFlash(t *testing.T) {
	recorded(t, false, func(r *recorder) {
		begin(r.Events, 0, 300, 30*time.Millisecond)
		time.Sleep(time.Hour)
		if n := r.writes.Load(); n != 0 {
			t.Errorf("%d writes of events that were sent", n)
		}
		begin(r.Events, 300, 60, 30*time.Millisecond)
		before := len(r.Server.Events())
		r.stop()
		if rows := len(rowsAt(r.T, r.path)); rows != 3*360-before || rows == 0 {
			t.Errorf("%d events were sent, %d are stored", before, rows)
		}
	})
}

// rowsAt returns the events in a database.
func rowsAt(t *testing.T, path string) []store.Event {
	t.Helper()
	db, err := store.Open(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
