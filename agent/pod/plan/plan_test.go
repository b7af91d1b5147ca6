package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

func exited(name string, code int32, streak uint32, at time.Time) Container {
	return Container{ID: "x-" + name, Name: name, SandboxID: "s", State: Exited, ExitCode: code, StartedAt: at.Add(-time.Second), FinishedAt: at, Streak: streak}
}

func running(name string) Container {
	return Container{ID: "r-" + name, Name: name, SandboxID: "s", State: Running, StartedAt: t0}
}

func TestDecide(t *testing.T) {
	ready := []Sandbox{{ID: "s", Ready: true}}
	lost := []Sandbox{{ID: "s", Attempt: 3, CreatedAt: t0.Add(-time.Minute)}}
	seen := func(sb []Sandbox, c ...Container) Observed { return Observed{Sandboxes: sb, Containers: c} }
	grace := 30 * time.Second
	deadline := newPod("Always", 0, 0, 1)
	minute := int64(60)
	deadline.Spec.ActiveDeadlineSeconds = &minute
	shared := newPod("Always", 0, 2, 1)
	watched := newPod("Never", 2, 1, 1) // i0, s0, i1, c0
	decorate(watched, 16)
	later := t0.Add(time.Second)
	lostAt := func(at time.Time, name string) Container {
		c := exited(name, 137, 0, at)
		c.Reason = "Unknown"
		return c
	}
	inRound := func(round uint32, c Container) Container { c.Round = round; return c }
	for _, tt := range []struct {
		name string
		in   Input
		want Decision
	}{
		{"new", Input{Want: newPod("Always", 0, 0, 1)}, Decision{Start: []Action{{Op: RunSandbox}}}},
		{"waits for its predecessor", Input{Want: newPod("Always", 0, 0, 1), Waiting: true}, Decision{}},
		{"orphan of a silent source", Input{Hold: true, Observed: seen(ready, running("c0"))}, Decision{}},
		{"init first", Input{Want: newPod("Always", 1, 0, 1), Observed: seen(ready)}, Decision{Start: []Action{{Op: StartContainer, Container: "i0"}}}},
		{"sidecar before main", Input{Want: newPod("Always", 0, 1, 1), Observed: seen(ready)}, Decision{Start: []Action{{Op: StartContainer, Container: "s0"}}}},
		{"sidecar not started yet", Input{Want: newPod("Always", 0, 1, 1), Observed: seen(ready, running("s0")), Health: map[string]Health{"r-s0": {}}}, Decision{}},
		{"main after sidecar", Input{Want: newPod("Always", 0, 1, 1), Observed: seen(ready, running("s0"))}, Decision{Start: []Action{{Op: StartContainer, Container: "c0"}}}},
		{"both at once", Input{Want: newPod("Always", 0, 0, 2), Observed: seen(ready)},
			Decision{Start: []Action{{Op: StartContainer, Container: "c0"}, {Op: StartContainer, Container: "c1"}}}},
		{"first restart at once", Input{Want: newPod("Always", 0, 0, 1), Now: t0, Observed: seen(ready, exited("c0", 1, 0, t0))},
			Decision{Start: []Action{{Op: StartContainer, Container: "c0", Attempt: 1, Streak: 1}}}},
		{"second after 10 s", Input{Want: newPod("Always", 0, 0, 1), Now: t0, Observed: seen(ready, exited("c0", 1, 1, t0))}, Decision{Wake: t0.Add(10 * time.Second)}},
		{"never more than 5 min", Input{Want: newPod("Always", 0, 0, 1), Now: t0, Observed: seen(ready, exited("c0", 1, 40, t0))}, Decision{Wake: t0.Add(5 * time.Minute)}},
		{"the clock was set back", Input{Want: newPod("Always", 0, 0, 1), Now: t0.Add(-time.Hour), Observed: seen(ready, exited("c0", 1, 3, t0))},
			Decision{Start: []Action{{Op: StartContainer, Container: "c0", Attempt: 1, Streak: 4}}}},
		{"killed between create and start", Input{Want: newPod("Always", 0, 0, 1), Observed: seen(ready, Container{ID: "x", Name: "c0", SandboxID: "s", Attempt: 2, Streak: 1})},
			Decision{Start: []Action{{Op: StartContainer, Container: "c0", Attempt: 2, Streak: 1}}}},
		{"sandbox lost", Input{Want: newPod("Always", 0, 0, 1), Now: t0, Observed: seen(lost, exited("c0", 255, 3, t0))}, Decision{Start: []Action{{Op: RunSandbox, Attempt: 4}}}},
		{"sandbox lost under a container", Input{Want: newPod("Always", 0, 0, 1), Now: t0, Grace: grace, Observed: seen(lost, running("c0"))},
			Decision{Start: []Action{{Op: StopContainer, Container: "c0", ID: "r-c0", Grace: grace}}}},
		{"sandbox stale: mains stop before sidecars", Input{Want: shared, Stale: "s", Now: t0, Grace: grace, Observed: seen(ready, running("c0"), running("s0"), running("s1"))},
			Decision{Start: []Action{{Op: StopContainer, Container: "c0", ID: "r-c0", Grace: grace, Interrupts: Replaced}}}},
		{"sandbox stale: then it stops", Input{Want: newPod("Always", 0, 0, 1), Stale: "s", Now: t0, Observed: seen(ready, exited("c0", 143, 0, t0))},
			Decision{Start: []Action{{Op: StopSandbox, ID: "s"}}}},
		{"sandbox stale: nothing starts in it", Input{Want: newPod("Always", 0, 0, 1), Stale: "s", Now: t0, Observed: seen(ready), InFlight: map[string]RunningAction{"c0": {Action: Action{Op: StartContainer, Container: "c0"}}}},
			Decision{Cancel: []string{"c0"}}},
		{"another sandbox is stale", Input{Want: newPod("Always", 0, 0, 1), Stale: "former", Now: t0, Observed: seen(ready, running("c0"))}, Decision{}},
		{"finished", Input{Want: newPod("Never", 0, 0, 1), Observed: seen(ready, exited("c0", 1, 0, t0))}, Decision{Start: []Action{{Op: StopSandbox, ID: "s"}}}},
		{"finished stays", Input{Want: newPod("OnFailure", 0, 0, 1), Observed: seen(lost, exited("c0", 0, 0, t0))}, Decision{Start: []Action{{Op: Ended}}}},
		{"init failed for good", Input{Want: newPod("Never", 1, 0, 1), Observed: seen(lost, exited("i0", 3, 0, t0))}, Decision{Start: []Action{{Op: Ended}}}},
		{"init of an earlier round ends the pod no more", Input{Want: watched, Now: later, Observed: seen(ready, exited("i0", 0, 0, t0), exited("s0", 2, 0, t0), exited("i1", 143, 0, later))},
			Decision{Start: []Action{{Op: StartContainer, Container: "i0", Attempt: 1, Streak: 1, Round: 1}}}},
		{"init of the current round ends the pod", Input{Want: watched, Now: later, Observed: seen(ready, inRound(1, exited("i0", 0, 0, t0)), inRound(1, running("s0")), inRound(1, exited("i1", 1, 0, later)))},
			Decision{Start: []Action{{Op: StopContainer, Container: "s0", ID: "r-s0", Grace: leastGrace}}}},
		{"sidecar that is stopped after a failed init restarts nothing", Input{Want: watched, Now: later, Observed: seen(ready, exited("i0", 0, 0, t0), exited("i1", 1, 0, t0), exited("s0", 2, 0, later))},
			Decision{Start: []Action{{Op: StopSandbox, ID: "s"}}}},
		{"sidecar that is stopped after the mains restarts nothing", Input{Want: watched, Now: later, Observed: seen(ready, exited("i0", 0, 0, t0), exited("i1", 0, 0, t0), exited("c0", 0, 0, t0), exited("s0", 2, 0, later))},
			Decision{Start: []Action{{Op: StopSandbox, ID: "s"}}}},
		{"sidecar before the mains restarts them", Input{Want: watched, Now: later, Observed: seen(ready, exited("i0", 0, 0, t0), exited("i1", 0, 0, t0), exited("c0", 137, 0, later), exited("s0", 2, 0, t0))},
			Decision{Start: []Action{{Op: StartContainer, Container: "i0", Attempt: 1, Streak: 1, Round: 1}}}},
		{"sidecar that is lost with the main restarts it", Input{Want: watched, Now: later, Observed: seen(ready, exited("i0", 0, 0, t0), exited("i1", 0, 0, t0), lostAt(t0, "c0"), lostAt(later, "s0"))},
			Decision{Start: []Action{{Op: StartContainer, Container: "i0", Attempt: 1, Streak: 1, Round: 1}}}},
		{"whichever of them is noticed first", Input{Want: watched, Now: later, Observed: seen(ready, exited("i0", 0, 0, t0), exited("i1", 0, 0, t0), lostAt(later, "c0"), lostAt(t0, "s0"))},
			Decision{Start: []Action{{Op: StartContainer, Container: "i0", Attempt: 1, Streak: 1, Round: 1}}}},
		{"sidecar that is lost after the main restarts nothing", Input{Want: watched, Now: later, Observed: seen(ready, exited("i0", 0, 0, t0), exited("i1", 0, 0, t0), exited("c0", 0, 0, t0), lostAt(later, "s0"))},
			Decision{Start: []Action{{Op: StopSandbox, ID: "s"}}}},
		{"sidecar that is stopped after a lost main restarts nothing", Input{Want: watched, Now: later, Observed: seen(ready, exited("i0", 0, 0, t0), exited("i1", 0, 0, t0), lostAt(t0, "c0"), exited("s0", 137, 0, later))},
			Decision{Start: []Action{{Op: StopSandbox, ID: "s"}}}},
		{"a sidecar in back-off holds up the next init", Input{Want: newPod("Always", 2, 1, 1), Now: t0, Observed: seen(ready, exited("i0", 0, 0, t0), exited("s0", 1, 3, t0))},
			Decision{Wake: t0.Add(40 * time.Second)}},
		{"a sidecar in back-off does not hold up an init that was created", Input{Want: newPod("Always", 2, 1, 1), Now: t0, Observed: seen(ready, exited("i0", 0, 0, t0), exited("s0", 1, 3, t0), exited("i1", 1, 0, t0))},
			Decision{Start: []Action{{Op: StartContainer, Container: "i1", Attempt: 1, Streak: 1}}, Wake: t0.Add(40 * time.Second)}},
		{"nor the mains after that init", Input{Want: newPod("Always", 2, 1, 1), Now: t0, Observed: seen(ready, exited("i0", 0, 0, t0), exited("s0", 1, 3, t0), exited("i1", 0, 0, t0))},
			Decision{Start: []Action{{Op: StartContainer, Container: "c0"}}, Wake: t0.Add(40 * time.Second)}},
		{"in another sandbox it does", Input{Want: newPod("Always", 2, 1, 1), Now: t0, Observed: seen([]Sandbox{{ID: "t", Attempt: 1, Ready: true}}, exited("i0", 0, 0, t0), exited("s0", 1, 3, t0), exited("i1", 0, 0, t0))},
			Decision{Start: []Action{{Op: StartContainer, Container: "i0", Attempt: 1}}}},
		{"deadline ahead", Input{Want: deadline, Started: t0, Now: t0.Add(time.Second), Observed: seen(ready, running("c0"))}, Decision{Wake: t0.Add(time.Minute)}},
		{"deadline over", Input{Want: deadline, Started: t0, Now: t0.Add(time.Minute), Grace: grace, Observed: seen(ready, running("c0"))},
			Decision{Start: []Action{{Op: StopContainer, Container: "c0", ID: "r-c0", Grace: grace}}}},
		{"mains stop before sidecars", Input{Want: shared, Deleting: true, Now: t0, Stopping: t0, Grace: grace, Observed: seen(ready, running("c0"), running("s0"), running("s1"))},
			Decision{Start: []Action{{Op: StopContainer, Container: "c0", ID: "r-c0", Grace: grace}}}},
		{"the last sidecar first, in the rest of the grace period", Input{Want: shared, Deleting: true, Now: t0.Add(20 * time.Second), Stopping: t0, Grace: grace, Observed: seen(ready, exited("c0", 0, 0, t0), running("s0"), running("s1"))},
			Decision{Start: []Action{{Op: StopContainer, Container: "s1", ID: "r-s1", Grace: 10 * time.Second}}}},
		{"all at once when time is up", Input{Want: shared, Deleting: true, Now: t0.Add(time.Minute), Stopping: t0, Grace: grace, Observed: seen(ready, running("s0"), running("s1"))},
			Decision{Start: []Action{{Op: StopContainer, Container: "s0", ID: "r-s0", Grace: leastGrace}, {Op: StopContainer, Container: "s1", ID: "r-s1", Grace: leastGrace}}}},
		{"delete cancels a pull", Input{InFlight: map[string]RunningAction{"c0": {Action: Action{Op: StartContainer, Container: "c0"}}}, Observed: seen(ready)}, Decision{Cancel: []string{"c0"}}},
		{"less grace replaces a stop", Input{Want: newPod("Always", 0, 0, 1), Deleting: true, Now: t0, Stopping: t0, Observed: seen(ready, running("c0")),
			InFlight: map[string]RunningAction{"c0": {Action{Op: StopContainer, Container: "c0", Grace: time.Hour}, t0}}}, Decision{Cancel: []string{"c0"}}},
		{"the least grace is not repeated", Input{Want: newPod("Always", 0, 0, 1), Deleting: true, Now: t0.Add(time.Minute), Stopping: t0, Grace: grace, Observed: seen(ready, running("c0")),
			InFlight: map[string]RunningAction{"c0": {Action{Op: StopContainer, Container: "c0", Grace: leastGrace}, t0.Add(time.Minute - time.Second)}}}, Decision{}},
		{"the first attempt of a pod's next life", Input{Want: newPod("Always", 0, 0, 1), Lives: 2, Observed: seen(ready)}, Decision{Start: []Action{{Op: StartContainer, Container: "c0", Attempt: 2}}}},
		{"gone", Input{}, Decision{Start: []Action{{Op: Forget}}}},
		{"forgotten", Input{Forgotten: true}, Decision{Done: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for i, a := range tt.want.Start {
				if a.Op == StartContainer {
					tt.want.Start[i].Hash = Hash(definition(tt.in.Want, a.Container))
				}
			}
			tt.in.Admitted = true
			got := Decide(tt.in)
			if !slices.Equal(got.Start, tt.want.Start) || !slices.Equal(got.Cancel, tt.want.Cancel) || !got.Wake.Equal(tt.want.Wake) ||
				got.Done != tt.want.Done {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestRestarts(t *testing.T) {
	never := v1.ContainerRestartPolicyNever
	ruleAction := func(op v1.ContainerRestartRuleOnExitCodesOperator) []v1.ContainerRestartRule {
		return []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: op, Values: []int32{42}}}}
	}
	for _, tt := range []struct {
		pod  v1.RestartPolicy
		ctr  v1.Container
		code int32
		want bool
	}{
		{"", v1.Container{}, 0, true},
		{"OnFailure", v1.Container{}, 0, false},
		{"OnFailure", v1.Container{}, 1, true},
		{"Never", v1.Container{}, 1, false},
		{"Always", v1.Container{RestartPolicy: &never}, 1, false},
		{"Never", v1.Container{RestartPolicyRules: ruleAction("In")}, 42, true},
		{"Never", v1.Container{RestartPolicyRules: ruleAction("In")}, 1, false},
		{"Never", v1.Container{RestartPolicyRules: ruleAction("NotIn")}, 1, true},
	} {
		in := Input{Want: &v1.Pod{Spec: v1.PodSpec{RestartPolicy: tt.pod}}}
		if got := WillRestart(in, &tt.ctr, Container{State: Exited, ExitCode: tt.code}); got != tt.want {
			t.Errorf("policy %q, container %+v, code %d: %v", tt.pod, tt.ctr, tt.code, got)
		}
	}
}

func becauseOf(reason string, streak uint32) Container {
	c := exited("c0", 137, streak, t0)
	c.Reason = reason
	return c
}

// TestStreakOfTheNode checks that a reboot or a lost shim does not count as a crash of a container. If a container was in a crash loop
// before its shim was lost, the loop continues.
func TestStreakOfTheNode(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(c *Container)
		first uint32
		want  uint32
	}{
		"clean boots":       {func(c *Container) { c.SandboxID, c.ExitCode = "old", 143 }, 0, 0},
		"cut off":           {func(c *Container) { c.SandboxID, c.Reason, c.ExitCode = "old", "Unknown", 255 }, 0, 0},
		"in a loop":         {func(c *Container) { c.SandboxID = "old" }, 5, 0},
		"shims":             {func(c *Container) { c.Reason = "ShimLost" }, 0, 0},
		"shims in a loop":   {func(c *Container) { c.Reason = "ShimLost" }, 3, 3},
		"crashes":           {func(*Container) {}, 0, 6},
		"killed for memory": {func(c *Container) { c.Reason = "OOMKilled" }, 1, 7},
	} {
		streak := tt.first
		for range 6 {
			c := exited("c0", 137, streak, t0)
			tt.end(&c)
			d := Decide(Input{Want: newPod("Always", 0, 0, 1), Admitted: true, Observed: Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true}}, Containers: []Container{c}}, Now: t0.Add(time.Hour)})
			i := slices.IndexFunc(d.Start, func(a Action) bool { return a.Op == StartContainer })
			if i < 0 || d.Start[i].Attempt != c.Attempt+1 {
				t.Fatalf("%s: %+v", name, d)
			}
			streak = d.Start[i].Streak
		}
		if streak != tt.want {
			t.Errorf("%s: %d crashes are counted, not %d", name, streak, tt.want)
		}
	}
}

func TestStreak(t *testing.T) {
	long := exited("c0", 1, 5, t0)
	long.StartedAt = t0.Add(-backoffReset)
	notStarted := exited("c0", 128, 5, t0)
	notStarted.StartedAt = time.Time{}
	for _, tt := range []struct {
		c    Container
		want time.Duration
	}{
		{exited("c0", 1, 0, t0), 0},
		{exited("c0", 1, 1, t0), 10 * time.Second},
		{exited("c0", 0, 2, t0), 20 * time.Second},
		{exited("c0", 0, 6, t0), 5 * time.Minute},
		{long, 0},
		{notStarted, 160 * time.Second},
		{becauseOf("Unknown", 5), time.Second},
		{becauseOf("ShimLost", 0), time.Second},
		{becauseOf("Error", 5), 160 * time.Second},
	} {
		if _, got := NextStart(tt.c, 0); got != tt.want {
			t.Errorf("%+v waits %v, not %v", tt.c, got, tt.want)
		}
		if _, got := NextStart(tt.c, 3*time.Second); got != min(tt.want, 3*time.Second) {
			t.Errorf("%+v waits %v, where 3 s is the most", tt.c, got)
		}
	}
}

// TestPodWithoutContainers checks that a pod whose spec was too large to be read is decided about. It has not finished, although none of
// its containers runs.
func TestPodWithoutContainers(t *testing.T) {
	in := Input{Want: newPod("Always", 0, 0, 0)}
	if d := Decide(in); len(d.Start) != 1 || d.Start[0].Op != Admit || IsFinished(in) {
		t.Errorf("got %+v", d)
	}
	in.End = &End{Reason: "PodTooLarge"}
	if d := Decide(in); slices.ContainsFunc(d.Start, func(a Action) bool { return a.Op == RunSandbox || a.Op == Admit }) {
		t.Errorf("after its rejection: %+v", d)
	}
}
