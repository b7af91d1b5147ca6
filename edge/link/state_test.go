package link

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLasts checks DisplaySince, the displayed start time of a phase of the link. A timeout makes the link Connecting. If the next probe
// succeeds, DisplaySince does not change. After an outage, DisplaySince is the time of the reconnection.
func TestLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, s := time.Now(), newStates()
		at := func(phase Phase, since, lasts time.Duration) {
			t.Helper()
			got, _ := s.get()
			if got.Phase != phase || got.Since.Sub(began) != since || got.DisplaySince.Sub(began) != lasts {
				t.Errorf("%s since %s lasts since %s; want %s, %s, %s", got.Phase, got.Since.Sub(began), got.DisplaySince.Sub(began),
					phase, since, lasts)
			}
		}
		for _, step := range []struct {
			State
			since, lasts time.Duration // in seconds; each step takes one second
		}{
			{State{Phase: Connecting}, 0, 0},
			{State{Phase: Up}, 1, 1},
			{State{Phase: Up}, 1, 1},
			{State{Phase: Connecting, Message: "a request was not answered"}, 3, 3},
			{State{Phase: Up}, 4, 1},
			{State{Phase: Connecting, Message: "a request was not answered"}, 5, 5},
			{State{Phase: Up}, 6, 1},
			{State{Phase: Connecting}, 7, 7},
			{State{Phase: Down, Reason: ReasonUnreachable}, 8, 8},
			{State{Phase: Down, Reason: ReasonNotReady}, 8, 8},
			{State{Phase: Up}, 10, 10},
			{State{Phase: Down}, 11, 11},
			{State{Phase: Connecting}, 12, 12},
			{State{Phase: Up}, 13, 13},
		} {
			s.set(step.State)
			at(step.Phase, step.since*time.Second, step.lasts*time.Second)
			time.Sleep(time.Second)
		}
	})
}
