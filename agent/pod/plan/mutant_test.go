package plan

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// spoil returns a planner that makes a mistake in some decisions of Decide.
func spoil(wrong func(Input, *Decision)) func(Input) Decision {
	return func(in Input) Decision {
		d := Decide(in)
		d.Start = slices.Clone(d.Start)
		wrong(in, &d)
		return d
	}
}

func forEachAction(d *Decision, op Op, f func(*Action)) {
	for i := range d.Start {
		if d.Start[i].Op == op {
			f(&d.Start[i])
		}
	}
}

// isIdle reports whether no action of the pod runs or is about to begin.
func isIdle(in Input, d *Decision) bool { return !in.Hold && len(in.InFlight)+len(d.Start) == 0 }

// TestMutants checks that the world's invariants reject each planner with a mistake. They accept Decide.
func TestMutants(t *testing.T) {
	if v := hunt(Decide, 3000); v != "" {
		t.Errorf("Decide: %s", v)
	}
	if os.Getenv("ISLET_TEST_LONG") == "" {
		t.Skip("set ISLET_TEST_LONG=1 to check that planners with mistakes are rejected")
	}
	for name, wrong := range mutants {
		v := hunt(spoil(wrong), 3000)
		if v == "" {
			t.Errorf("no invariant rejects the planner that %s", name)
		}
		t.Logf("planner that %s: %s", name, v)
	}
}

// rare contains the seeds of lives that reveal two mistakes. Random lives reveal each of the two mistakes only once in ten thousand
// lives. One mistake needs a pod with an uncertain size. The other mistake needs a pod whose containers all restart. If a change of the
// world makes a seed useless, find another one.
var rare = []uint64{4322, 9327}

// stopLost is a life in which a probe fails, and the agent restarts before the container gets its signal.
var stopLost = []byte{1, 0, 0, 0, 13, 26, 0}

// hunt runs random lives until an invariant is violated. It returns the violation.
func hunt(decide func(Input) Decision, lives uint64) (found violation) {
	if found = survive(stopLost, decide); found != "" {
		return found
	}
	for i := range lives + uint64(len(rare)) {
		seed := i - uint64(len(rare))
		if i < uint64(len(rare)) {
			seed = rare[i]
		}
		r := rand.New(rand.NewPCG(seed, 7))
		data := make([]byte, 5+r.IntN(120))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		if found = survive(data, decide); found != "" {
			return found
		}
	}
	return ""
}

func survive(data []byte, decide func(Input) Decision) (found violation) {
	defer func() {
		if r := recover(); r != nil {
			found = r.(violation)
		}
	}()
	simulatePod(data, decide)
	return ""
}
