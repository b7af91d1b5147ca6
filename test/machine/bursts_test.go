package machine

import (
	"slices"
	"testing"
	"time"
)

// TestBursts checks that only a pause of 100 ms or more separates two bursts.
func TestBursts(t *testing.T) {
	const ms = time.Millisecond
	b := &Bursts{Over: 30 * time.Second}
	for i, who := range []string{"", "agent", "", "", "", "", "shims", "", "", "", "", "", "", "agent shims", "agent"} {
		b.add(time.Duration(i)*20*ms, 20*ms, who)
	}
	if want := []time.Duration{20 * ms, 260 * ms}; !slices.Equal(b.Starts, want) || !slices.Equal(b.Who, []string{"agent", "agent shims"}) {
		t.Errorf("bursts start at %v (%v), want %v", b.Starts, b.Who, want)
	}
	if b.PerMinute() != 4 {
		t.Errorf("%v bursts a minute", b.PerMinute())
	}
}
