package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestHashIsAKubelets checks that Hash returns the same hash as kubelets since 1.31. Containers of such a kubelet can therefore continue to
// run.
func TestHashIsAKubelets(t *testing.T) {
	ctr := &v1.Container{Name: "test_container", Image: "foo/image:v1", Args: []string{"/bin/sh", "-c", "echo abc"}}
	if got := Hash(ctr); got != "8e45cbd0" {
		t.Errorf("got %s", got)
	}
	other := *ctr
	other.Args = nil
	if Hash(&other) != Hash(ctr) {
		t.Error("a field that cannot change is part of the hash")
	}
	other.Image = "foo/image:v2"
	if Hash(&other) == Hash(ctr) {
		t.Error("the image is not part of the hash")
	}
}

func TestChanged(t *testing.T) {
	ctr := &v1.Container{Name: "c", Image: "app:2"}
	for _, tt := range []struct {
		name string
		c    Container
		want bool
	}{
		{"the same", Container{Hash: Hash(ctr), Image: "docker.io/library/app:2"}, false},
		{"another image", Container{Hash: Hash(&v1.Container{Name: "c", Image: "app:1"}), Image: "app:1"}, true},
		{"from before hashes", Container{Image: "app:1"}, false},
		{"a hash of another make", Container{Hash: "1234", Image: "app:2"}, false},
		{"nothing runs", Container{}, false},
	} {
		if got := DefinitionChanged(ctr, tt.c); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// withOldDefinition returns the container with a definition that differs from the pod's.
func withOldDefinition(c Container) Container {
	c.Hash, c.Image = "old", "app:0"
	return c
}

func TestDefinitionChanged(t *testing.T) {
	grace := 30 * time.Second
	main := newPod("Never", 0, 0, 1)
	sidecar := newPod("Always", 0, 1, 1)
	two := newPod("Never", 0, 0, 2)
	inits := newPod("Always", 1, 0, 1)
	h := func(pod *v1.Pod, name string) string { return Hash(definition(pod, name)) }
	busy := func(hash string) map[string]RunningAction {
		return map[string]RunningAction{"c0": {Action: Action{Op: StartContainer, Container: "c0", Hash: hash}}}
	}
	start := func(pod *v1.Pod, name string, attempt, streak uint32) []Action {
		return []Action{{Op: StartContainer, Container: name, Attempt: attempt, Streak: streak, Hash: h(pod, name)}}
	}
	stop := func(pod *v1.Pod, name string) []Action {
		return []Action{{Op: StopContainer, Container: name, ID: "r-" + name, Grace: grace, Hash: h(pod, name), Interrupts: Replaced}}
	}
	for _, tt := range []struct {
		name   string
		want   *v1.Pod
		in     Input
		seen   []Container
		start  []Action
		cancel []string
	}{
		{name: "whatever the policy", want: main, seen: []Container{withOldDefinition(running("c0"))}, start: stop(main, "c0")},
		{name: "a sidecar", want: sidecar, seen: []Container{withOldDefinition(running("s0")), running("c0")}, start: stop(sidecar, "s0")},
		{name: "an init container ends by itself", want: inits, seen: []Container{withOldDefinition(running("i0"))}},
		{name: "and its failure is followed by the new one at once", want: inits, seen: []Container{withOldDefinition(exited("i0", 1, 7, t0))}, start: start(inits, "i0", 1, 0)},
		{name: "stopped for it", want: main, in: Input{Interrupted: map[string]Interruption{"x-c0": Replaced}}, seen: []Container{withOldDefinition(exited("c0", 143, 7, t0))}, start: start(main, "c0", 1, 0)},
		{name: "the one before was stopped for it", want: main, in: Input{Interrupted: map[string]Interruption{"y": Replaced}}, seen: []Container{exited("c0", 1, 0, t0)},
			start: []Action{{Op: StopSandbox, ID: "s"}}},
		{name: "what ended by itself stays so", want: two, seen: []Container{withOldDefinition(exited("c0", 0, 0, t0)), running("c1")}},
		{name: "no crash loop of another definition", want: sidecar, seen: []Container{withOldDefinition(exited("c0", 1, 7, t0)), running("s0")}, start: start(sidecar, "c0", 1, 0)},
		{name: "created, not started", want: main, seen: []Container{withOldDefinition(Container{ID: "x", Name: "c0", SandboxID: "s", Attempt: 3})}, start: start(main, "c0", 4, 0)},
		{name: "a start of another definition", want: main, in: Input{InFlight: busy("old")}, cancel: []string{"c0"}},
		{name: "a start of this one", want: main, in: Input{InFlight: busy(h(main, "c0"))}},
		{name: "older than hashes", want: main, seen: []Container{running("c0")}},
		{name: "in a lost sandbox", want: main, seen: []Container{func() Container { c := withOldDefinition(running("c0")); c.SandboxID = "lost"; return c }()},
			start: []Action{{Op: StopContainer, Container: "c0", ID: "r-c0", Grace: grace, Interrupts: CutOff}}},
		{name: "of a pod that ends", want: main, in: Input{Deleting: true}, seen: []Container{withOldDefinition(running("c0"))},
			start: []Action{{Op: StopContainer, Container: "c0", ID: "r-c0", Grace: grace}}},
		{name: "of a pod that ended", want: main, in: Input{End: &End{Phase: v1.PodFailed}}, seen: []Container{withOldDefinition(exited("c0", 1, 0, t0))},
			start: []Action{{Op: StopSandbox, ID: "s"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in
			in.Want, in.Now, in.Grace, in.Admitted = tt.want, t0, grace, true
			in.Observed = Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true}}, Containers: tt.seen}
			if got := Decide(in); !slices.Equal(got.Start, tt.start) || !slices.Equal(got.Cancel, tt.cancel) {
				t.Errorf("got  %+v\nwant %+v, cancel %v", got, tt.start, tt.cancel)
			}
		})
	}
}
