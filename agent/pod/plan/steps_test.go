package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestSteps checks the planner's steps that are not visible in the runtime's state: the admission and the calls of hooks.
func TestSteps(t *testing.T) {
	ready, lost := []Sandbox{{ID: "s", Ready: true}}, []Sandbox{{ID: "s"}}
	runs := Observed{Sandboxes: ready, Containers: []Container{running("c0")}}
	ended := Observed{Sandboxes: lost, Containers: []Container{exited("c0", 0, 0, t0)}}
	refused := &End{Reason: "OutOfcpu"}
	busy := func(a Action) map[string]RunningAction {
		return map[string]RunningAction{a.Container: {Action: a, Since: t0}}
	}
	failed := func(op Op) map[Key]Failure { return map[Key]Failure{{Op: op}: {N: 1, Retry: t0.Add(time.Second)}} }
	always, never := newPod("Always", 0, 0, 1), newPod("Never", 0, 0, 1)
	for _, tt := range []struct {
		name   string
		in     Input
		start  []Action
		cancel []string
		wake   time.Time
	}{
		{name: "no verdict yet", in: Input{Want: always}, start: []Action{{Op: Admit}}},
		{name: "nor while its predecessor is there", in: Input{Want: always, Waiting: true}},
		{name: "nor for one that ends", in: Input{Want: always, Deleting: true}, start: []Action{{Op: Forget}}},
		{name: "the verdict could not be stored", in: Input{Want: always, Failed: failed(Admit)}, wake: t0.Add(time.Second)},
		{name: "deleted meanwhile", in: Input{Want: always, Deleting: true, InFlight: busy(Action{Op: Admit})}, cancel: []string{""}},
		{name: "refused", in: Input{Want: always, End: refused}, start: []Action{{Op: Ended}}},
		{name: "refused for good", in: Input{Want: always, End: refused, Ended: true}},
		{name: "refused, and the reason may be gone", in: Input{Want: always, End: refused, Ended: true, Reconsider: true}, start: []Action{{Op: Admit}}},

		{name: "evicted", in: Input{Want: always, End: &End{Reason: Evicted}, Observed: ended}, start: []Action{{Op: Ended}}},
		{name: "evicted, and its last status is not known yet", in: Input{Want: always, End: &End{Reason: Evicted}, Observed: ended, Ended: true}},
		{name: "evicted, and all know", in: Input{Want: always, End: &End{Reason: Evicted, Phase: v1.PodFailed}, Observed: ended, Ended: true}, start: []Action{{Op: RemoveContainer, Container: "c0", ID: ended.Containers[0].ID}}},
		{name: "evicted, and may come back", in: Input{Want: always, End: &End{Reason: Evicted, Phase: v1.PodFailed}, Observed: Observed{Sandboxes: lost}, Ended: true, Reconsider: true}, start: []Action{{Op: Admit}}},
		{name: "failed, and all know", in: Input{Want: always, End: &End{Reason: "NodeLost", Phase: v1.PodFailed}, Observed: ended, Ended: true}},

		{name: "the spec is another", in: Input{Want: always, Admitted: true, Spec: "2", Applied: "1", Observed: runs}, start: []Action{{Op: Update, Hash: "2"}}},
		{name: "the spec is known", in: Input{Want: always, Admitted: true, Spec: "2", Applied: "2", Observed: runs}},
		{name: "which spec it was is not known", in: Input{Want: always, Admitted: true, Spec: "2", Observed: runs}},
		{name: "no sandbox to update", in: Input{Want: always, Admitted: true, Spec: "2", Applied: "1"}, start: []Action{{Op: RunSandbox, Hash: "2"}}},
		{name: "another one while it updates", in: Input{Want: always, Admitted: true, Spec: "3", Applied: "1", Observed: runs, InFlight: busy(Action{Op: Update, Hash: "2"})}, cancel: []string{""}},
		{name: "deleted while it updates", in: Input{Want: always, Deleting: true, Observed: runs, InFlight: busy(Action{Op: Update, Hash: "2"})}, cancel: []string{""}},

		{name: "over", in: Input{Want: never, Admitted: true, Observed: ended}, start: []Action{{Op: Ended}}},
		{name: "over since long", in: Input{Want: never, Admitted: true, Observed: ended, Ended: true}},
		{name: "volumes do not unmount", in: Input{Want: never, Admitted: true, Observed: ended, Failed: failed(Ended)}, wake: t0.Add(time.Second)},
		{name: "deleted while it is given back", in: Input{Want: never, Deleting: true, Observed: ended, InFlight: busy(Action{Op: Ended})}, cancel: []string{""}},
		{name: "it runs again", in: Input{Want: always, Admitted: true, Observed: Observed{Sandboxes: ready, Containers: []Container{running("c0")}}, InFlight: busy(Action{Op: Ended})}, cancel: []string{""}},

		{name: "not forgotten yet", in: Input{Observed: Observed{Sandboxes: lost}}, start: []Action{{Op: RemoveSandbox, ID: "s"}}},
		{name: "forgetting fails", in: Input{Failed: failed(Forget)}, wake: t0.Add(time.Second)},
		{name: "wanted while it is forgotten", in: Input{Want: always, Admitted: true, InFlight: busy(Action{Op: Forget})}, cancel: []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.Now = t0
			got := Decide(tt.in)
			if !slices.Equal(got.Start, tt.start) || !slices.Equal(got.Cancel, tt.cancel) || !got.Wake.Equal(tt.wake) || got.Done {
				t.Errorf("got  %+v\nwant %+v, cancel %q, wake %v", got, tt.start, tt.cancel, tt.wake)
			}
		})
	}
}
