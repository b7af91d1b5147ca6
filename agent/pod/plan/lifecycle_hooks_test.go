package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// This helper returns a pod with additional features. The parameter extra selects them, as in decorate.
func dressed(restartPolicy v1.RestartPolicy, inits, sidecars, mains, extra int) *v1.Pod {
	p := newPod(restartPolicy, inits, sidecars, mains)
	decorate(p, extra)
	return p
}

// These constants are the bits of decorate's parameter extra.
const (
	postStart     = 1
	preStop       = 2
	preStopBeside = 4 // sidecars have preStop hooks
	debugged      = 8
	targeted      = 8 | 16
	restartsAll   = 32 // c0 has rules for exit code 2
)

func hooking(c Container) Container { c.PostStart = true; return c }

func inRound(round uint32, list ...Container) []Container {
	for i := range list {
		list[i].Round = round
	}
	return list
}

func TestDecideHooks(t *testing.T) {
	ready := []Sandbox{{ID: "s", Ready: true}}
	seen := func(c ...Container) Observed { return Observed{Sandboxes: ready, Containers: c} }
	busy := func(a Action) map[string]RunningAction {
		return map[string]RunningAction{a.Container: {Action: a, Since: t0}}
	}
	const grace = 30 * time.Second
	start := func(name string, attempt, streak uint32) Action {
		return Action{Op: StartContainer, Container: name, Attempt: attempt, Streak: streak}
	}
	stop := func(name string, grace time.Duration) Action {
		return Action{Op: StopContainer, Container: name, ID: "r-" + name, Grace: grace}
	}
	before := func(name string, grace time.Duration) Action {
		return Action{Op: PreStop, Container: name, ID: "r-" + name, Grace: grace}
	}
	after := Action{Op: PostStart, Container: "c0", ID: "r-c0"}
	hook := hooking(running("c0"))
	failed := map[Key]Failure{{"c0", PostStart}: {N: 1, ID: "r-c0"}}
	for _, tt := range []struct {
		name   string
		in     Input
		starts []Action
		cancel []string
	}{
		{"mains wait for the start of one with a hook", Input{Want: dressed("", 0, 0, 2, postStart), Observed: seen()}, []Action{start("c0", 0, 0)}, nil},
		{"the hook runs, mains wait", Input{Want: dressed("", 0, 0, 2, postStart), Observed: seen(hook)}, []Action{after}, nil},
		{"it has returned", Input{Want: dressed("", 0, 0, 2, postStart), Observed: seen(hook), Hooked: map[string]bool{"r-c0": true}}, []Action{start("c1", 0, 0)}, nil},
		{"a container of before hooks has none to run", Input{Want: dressed("", 0, 0, 1, postStart), Observed: seen(running("c0"))}, nil, nil},
		{"it failed", Input{Want: dressed("", 0, 0, 1, postStart), Observed: seen(hook), Failed: failed}, []Action{stop("c0", grace)}, nil},
		{"it failed in the container before", Input{Want: dressed("", 0, 0, 1, postStart), Observed: seen(hook), Failed: map[Key]Failure{{"c0", PostStart}: {N: 1, ID: "x"}}}, []Action{after}, nil},
		{"its container ended", Input{Want: dressed("Never", 0, 0, 1, postStart), Observed: seen(hooking(exited("c0", 1, 0, t0))), InFlight: busy(after)}, nil, []string{"c0"}},
		{"a probe gave its container up", Input{Want: dressed("", 0, 0, 1, postStart), Observed: seen(hook), InFlight: busy(after), Health: map[string]Health{"r-c0": {Unhealthy: true}}}, nil, []string{"c0"}},
		{"its pod is deleted", Input{Want: dressed("", 0, 0, 1, postStart), Deleting: true, Observed: seen(hook), InFlight: busy(after)}, nil, []string{"c0"}},
		{"a change of the spec does not wait for it", Input{Want: dressed("", 0, 0, 1, postStart), Spec: "new", Applied: "old", Observed: seen(hook), InFlight: busy(after)}, []Action{{Op: Update, Hash: "new"}}, nil},

		{"preStop first", Input{Want: dressed("", 0, 0, 1, preStop), Deleting: true, Stopping: t0, Observed: seen(running("c0"))}, []Action{before("c0", grace)}, nil},
		{"then the stop, in the rest of the grace period", Input{Want: dressed("", 0, 0, 1, preStop), Deleting: true, Stopping: t0.Add(-20 * time.Second), Observed: seen(running("c0")), PreStopped: map[string]time.Duration{"r-c0": 20 * time.Second}}, []Action{stop("c0", 10*time.Second)}, nil},
		{"nothing is left", Input{Want: dressed("", 0, 0, 1, preStop), Deleting: true, Stopping: t0.Add(-grace), Observed: seen(running("c0")), PreStopped: map[string]time.Duration{"r-c0": grace}}, []Action{stop("c0", leastGrace)}, nil},
		{"no time for a hook", Input{Want: dressed("", 0, 0, 1, preStop), Deleting: true, Stopping: t0.Add(-time.Minute), Observed: seen(running("c0"))}, []Action{stop("c0", leastGrace)}, nil},
		{"less grace cuts it short", Input{Want: dressed("", 0, 0, 1, preStop), Deleting: true, Stopping: t0, Observed: seen(running("c0")), InFlight: busy(before("c0", time.Hour))}, nil, []string{"c0"}},
		{"of a container whose probe failed", Input{Want: dressed("", 0, 0, 1, preStop), Observed: seen(running("c0")), Health: map[string]Health{"r-c0": {Unhealthy: true}}}, []Action{before("c0", grace)}, nil},
		{"then it stops, in the rest of its own time", Input{Want: dressed("", 0, 0, 1, preStop), Observed: seen(running("c0")), Health: map[string]Health{"r-c0": {Unhealthy: true}}, PreStopped: map[string]time.Duration{"r-c0": 12 * time.Second}}, []Action{stop("c0", 18*time.Second)}, nil},
		{"what was asked to stop stops", Input{Want: dressed("", 0, 0, 1, preStop), Observed: seen(running("c0")), PreStopped: map[string]time.Duration{"r-c0": time.Second}},
			[]Action{{Op: StopContainer, Container: "c0", ID: "r-c0", Grace: 29 * time.Second, Interrupts: CutOff}}, nil},
		{"sidecars hear of the end at once", Input{Want: dressed("", 0, 2, 1, preStopBeside), Deleting: true, Stopping: t0, Observed: seen(running("c0"), running("s0"), running("s1"))},
			[]Action{stop("c0", grace), before("s0", grace), before("s1", grace)}, nil},
		{"sidecars wait for their turn", Input{Want: dressed("", 0, 2, 1, preStopBeside), Deleting: true, Stopping: t0, Observed: seen(running("c0"), running("s0"), running("s1")),
			PreStopped: map[string]time.Duration{"r-s0": 0, "r-s1": 0}}, []Action{stop("c0", grace)}, nil},
		{"sidecars that end stay ended", Input{Want: dressed("", 0, 2, 1, 0), Deleting: true, Stopping: t0, Observed: seen(running("c0"), exited("s0", 1, 0, t0), running("s1"))}, []Action{stop("c0", grace)}, nil},

		{"an ephemeral container beside an init container", Input{Want: dressed("", 1, 0, 1, debugged), Observed: seen(running("i0"))}, []Action{start("e0", 0, 0)}, nil},
		{"it does not start again", Input{Want: dressed("", 0, 0, 1, debugged), Observed: seen(running("c0"), exited("e0", 1, 0, t0))}, nil, nil},
		{"its target", Input{Want: dressed("", 0, 0, 1, targeted), Observed: seen(running("c0"))}, []Action{{Op: StartContainer, Container: "e0", Target: "r-c0"}}, nil},
		{"it failed without its target", Input{Want: dressed("", 0, 0, 1, targeted), Observed: seen(running("c0")), Failed: map[Key]Failure{{"e0", StartContainer}: {N: 9, Retry: t0.Add(time.Hour)}}},
			[]Action{{Op: StartContainer, Container: "e0", Target: "r-c0"}}, nil},
		{"it failed with it", Input{Want: dressed("", 0, 0, 1, targeted), Observed: seen(running("c0")), Failed: map[Key]Failure{{"e0", StartContainer}: {N: 9, ID: "r-c0", Retry: t0.Add(time.Hour)}}}, nil, nil},
		{"nobody waits for its end", Input{Want: dressed("", 0, 1, 1, debugged), Deleting: true, Stopping: t0, Observed: seen(exited("c0", 0, 0, t0), running("e0"), running("s0"))},
			[]Action{stop("e0", grace), stop("s0", grace)}, nil},
		{"it does not keep a pod going", Input{Want: dressed("Never", 0, 0, 1, debugged), Observed: seen(exited("c0", 0, 0, t0), running("e0"))}, []Action{stop("e0", grace)}, nil},

		{"all restart: the rest ends", Input{Want: dressed("Never", 1, 1, 2, restartsAll|preStopBeside), Observed: seen(exited("c0", 2, 0, t0), running("c1"), running("s0"), exited("i0", 0, 0, t0))},
			[]Action{stop("s0", leastGrace), stop("c1", leastGrace)}, nil},
		{"all restart: from the start", Input{Want: dressed("Never", 1, 0, 2, restartsAll), Observed: seen(exited("c0", 2, 0, t0), exited("c1", 137, 0, t0), exited("i0", 0, 0, t0))},
			[]Action{{Op: StartContainer, Container: "i0", Attempt: 1, Streak: 1, Round: 1}}, nil},
		{"all restart: the mains", Input{Want: dressed("Never", 1, 0, 2, restartsAll), Observed: seen(append(inRound(1, exited("i0", 0, 1, t0)), exited("c0", 2, 0, t0), exited("c1", 0, 0, t0))...)},
			[]Action{{Op: StartContainer, Container: "c0", Attempt: 1, Streak: 1, Round: 1}, {Op: StartContainer, Container: "c1", Attempt: 1, Streak: 1, Round: 1}}, nil},
		{"all restarted", Input{Want: dressed("Never", 1, 0, 2, restartsAll), Observed: seen(inRound(1, exited("i0", 0, 1, t0), running("c0"), running("c1"))...)}, nil, nil},
		{"another code", Input{Want: dressed("Never", 0, 0, 2, restartsAll), Observed: seen(exited("c0", 3, 0, t0), running("c1"))}, nil, nil},
		{"an ephemeral container goes on", Input{Want: dressed("Never", 0, 0, 2, restartsAll|debugged), Observed: seen(exited("c0", 2, 0, t0), running("c1"), running("e0"))}, []Action{stop("c1", leastGrace)}, nil},
		{"what still starts is of the round before", Input{Want: dressed("Never", 0, 0, 2, restartsAll), Observed: seen(exited("c0", 2, 0, t0)), InFlight: busy(Action{Op: StartContainer, Container: "c1"})},
			[]Action{{Op: StartContainer, Container: "c0", Attempt: 1, Streak: 1, Round: 1}}, []string{"c1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hash := func(a *Action) {
				if a.Op == StartContainer {
					a.Hash = Hash(definition(tt.in.Want, a.Container))
				}
			}
			for i := range tt.starts {
				hash(&tt.starts[i])
			}
			for s, f := range tt.in.InFlight {
				hash(&f.Action)
				tt.in.InFlight[s] = f
			}
			tt.in.Admitted, tt.in.Now, tt.in.Grace = true, t0, grace
			got := Decide(tt.in)
			if !slices.Equal(got.Start, tt.starts) || !slices.Equal(got.Cancel, tt.cancel) {
				t.Errorf("got  %+v %q\nwant %+v %q", got.Start, got.Cancel, tt.starts, tt.cancel)
			}
		})
	}
}

// TestDeadlineChanges checks that the deadline of a pod can be set and shortened while the pod runs.
func TestDeadlineChanges(t *testing.T) {
	in := Input{Want: newPod("Always", 0, 0, 1), Admitted: true, Started: t0, Now: t0.Add(time.Minute), Grace: time.Second,
		Observed: Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true}}, Containers: []Container{running("c0")}}}
	for _, tt := range []struct {
		seconds int64
		wake    time.Time
		over    bool
	}{{3600, t0.Add(time.Hour), false}, {90, t0.Add(90 * time.Second), false}, {60, time.Time{}, true}, {1, time.Time{}, true}} {
		in.Want.Spec.ActiveDeadlineSeconds = &tt.seconds
		d := Decide(in)
		if !d.Wake.Equal(tt.wake) || (len(d.Start) == 1) != tt.over || DeadlineExpired(in) != tt.over {
			t.Errorf("%d s: %+v", tt.seconds, d)
		}
	}
}
