package figures

import (
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/clock"
)

// TestStartup checks that the start of a new node is measured once. Each part is measured from the end of the previous part.
func TestStartup(t *testing.T) {
	const name = "node_startup_"
	var now time.Duration
	start := func() *Startup {
		s := newStartup(time.Now())
		now = 20 * time.Second
		s.uptime, s.agentStart = func() (time.Duration, bool) { return now, true }, now
		return s
	}
	after := func(d time.Duration, f func()) { now += d * time.Second; f() }

	s := start()
	after(0, s.Ready)
	after(3, s.Registering)
	after(4, s.Ready)       // the node is not registered yet
	after(1, s.Registering) // a repeated attempt
	equal(t, values(t, s.collectors()...), map[string]float64{})
	after(2, s.Created)
	want := map[string]float64{name + "pre_kubelet_duration_seconds": 20, name + "pre_registration_duration_seconds": 3,
		name + "registration_duration_seconds": 7}
	equal(t, values(t, s.collectors()...), want)
	after(9, s.Ready)
	want[name+"post_registration_duration_seconds"], want[name+"duration_seconds"] = 9, 39
	equal(t, values(t, s.collectors()...), want)
	for range 2 { // the Node is deleted and created again, or reported as ready again
		after(100, s.Registering)
		after(100, s.Created)
		after(100, s.Ready)
	}
	equal(t, values(t, s.collectors()...), want)

	s = start() // the Node exists when this agent starts, and is deleted later
	after(3, s.Registering)
	after(4, s.Found)
	after(5, s.Ready)
	after(100, s.Registering)
	after(1, s.Created)
	after(1, s.Ready)
	equal(t, values(t, s.collectors()...), map[string]float64{})
}

// TestStartupClock checks that the agent's start is after the boot and before the present.
func TestStartupClock(t *testing.T) {
	s := newStartup(time.Now().Add(-time.Second))
	if now, _ := clock.Uptime(); s.agentStart <= 0 || now-s.agentStart < time.Second || now-s.agentStart > time.Minute {
		t.Errorf("the agent started %v after the boot, now is %v", s.agentStart, now)
	}
}

// TestWorking checks that all series of a kubelet exist, even if they count nothing.
func TestWorking(t *testing.T) {
	got := values(t, Working(func() map[[3]string]int { return map[[3]string]int{{"terminating", "orphan", "true"}: 2} }),
		Restarted(func() (static, fromAPI int) { return 3, 1 }))
	if n := len(got); n != 17 {
		t.Errorf("%d series: %v", n, got)
	}
	// The function values sorts the labels by name: config, lifecycle, static.
	for series, want := range map[string]float64{
		"working_pods orphan terminating true": 2, "working_pods desired sync ": 0, "working_pods runtime_only terminated unknown": 0,
		"restarted_pods_total true": 3, "restarted_pods_total ": 1,
	} {
		if n, found := got[series]; n != want || !found {
			t.Errorf("%s is %v (%v), not %v", series, n, found, want)
		}
	}
}
