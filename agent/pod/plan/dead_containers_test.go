package plan

import (
	"slices"
	"testing"
	"time"
)

// TestDead checks that the configured number of exited containers is kept. Recently exited containers are kept too. So are containers that
// decide about the next attempt.
func TestDead(t *testing.T) {
	ended := func(n uint32) Container {
		c := exited("c0", 1, 0, t0.Add(time.Duration(n)*time.Minute))
		c.ID, c.Attempt = string(rune('0'+n)), n
		return c
	}
	runs := running("c0")
	runs.Attempt = 3
	now := t0.Add(5 * time.Minute)
	for name, c := range map[string]struct {
		dead DeadLimit
		seen []Container
		gone []string
		wake time.Time
	}{
		"one, as is usual":        {DeadLimit{}, []Container{ended(0), ended(1), ended(2), runs}, []string{"0"}, time.Time{}},
		"two":                     {DeadLimit{More: 1}, []Container{ended(0), ended(1), ended(2), runs}, []string{"0"}, time.Time{}},
		"three":                   {DeadLimit{More: 2}, []Container{ended(0), ended(1), ended(2), runs}, nil, time.Time{}},
		"none, while one runs":    {DeadLimit{More: -1}, []Container{ended(2), runs}, []string{"2"}, time.Time{}},
		"none, but none runs":     {DeadLimit{More: -1}, []Container{ended(2)}, nil, time.Time{}},
		"young ones":              {DeadLimit{More: -1, MinAge: 4 * time.Minute}, []Container{ended(0), ended(2), runs}, []string{"0"}, t0.Add(6 * time.Minute)},
		"of a clock that was set": {DeadLimit{More: -1, MinAge: time.Second}, []Container{ended(2), runs}, []string{"2"}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Want: newPod("Never", 0, 0, 1), Admitted: true, Now: now, DeadLimit: c.dead, Observed: Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true}}, Containers: c.seen}}
			if name == "of a clock that was set" {
				in.Now = t0.Add(-time.Hour)
			}
			got := Decide(in)
			var gone []string
			for _, a := range got.Start {
				if a.Op == RemoveContainer {
					gone = append(gone, a.ID)
				}
			}
			if !slices.Equal(gone, c.gone) || c.wake != got.Wake && !c.wake.IsZero() {
				t.Errorf("removes %q, wakes %v; want %q, %v", gone, got.Wake, c.gone, c.wake)
			}
		})
	}
}

// TestOlderRuns checks that an older container that may still run is stopped as any other container, also without a grace period.
func TestOlderRuns(t *testing.T) {
	older, runs := running("c0"), running("c0")
	older.ID, runs.Attempt = "0", 1
	for grace, want := range map[time.Duration]time.Duration{0: leastGrace, time.Minute: time.Minute} {
		in := Input{Want: newPod("Never", 0, 0, 1), Admitted: true, Grace: grace,
			Observed: Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true}}, Containers: []Container{older, runs}}}
		if got := Decide(in).Start; !slices.Contains(got, Action{Op: StopContainer, Container: "c0", ID: "0", Grace: want}) {
			t.Errorf("grace period %v: %+v", grace, got)
		}
	}
}
