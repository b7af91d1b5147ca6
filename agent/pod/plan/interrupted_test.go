package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// TestInterrupted stops a container that exits with 0, for each reason and with each restart policy. It checks which pods have then
// finished, also after a restart of the agent, which keeps only the stored records.
func TestInterrupted(t *testing.T) {
	ready, lost := []Sandbox{{ID: "s", Ready: true}}, []Sandbox{{ID: "s"}}
	const (
		never     = "Never"
		onFailure = "OnFailure"
	)
	preempted := &End{Reason: Preempting}
	for name, tt := range map[string]struct {
		in       Input
		source   string
		sandbox  []Sandbox
		change   func(*Container)
		finished string // the policies of the pods that have finished
		failed   string // the policies of pods whose container counts as failed
	}{
		"the pod is deleted":                  {in: Input{Deleting: true}, finished: never + onFailure},
		"the machine shuts down":              {in: Input{ShutdownSince: t0}, finished: never, failed: never},
		"the sandbox is lost":                 {sandbox: lost, finished: never, failed: never},
		"the container is lost":               {change: func(c *Container) { c.State = Unknown }, finished: never, failed: never},
		"the network was replaced":            {in: Input{Stale: "s"}},
		"the pod of a directory is preempted": {in: Input{End: preempted}, source: keys.SourceFile},
		"the pod of a user is preempted":      {in: Input{End: preempted}, source: keys.SourceLocal},
		"the pod of the server is preempted":  {in: Input{End: preempted}, source: keys.SourceAPI, finished: never + onFailure},
		"its phase is final":                  {in: Input{End: &End{Phase: v1.PodFailed}}, finished: never + onFailure},
		"another image is wanted":             {change: func(c *Container) { *c = withOldDefinition(*c) }},
		"a resize needs a restart": {in: Input{Sizes: map[string]Size{"c0": {RestartResources: "b"}}},
			change: func(c *Container) { c.RestartResources = "a" }},
		"a user requests a restart": {in: Input{Requested: map[string]Restart{"c0": {ID: "r-c0", Grace: time.Second}}}},
		"a probe failed":            {in: Input{Health: map[string]Health{"r-c0": {Started: true, Unhealthy: true}}}, finished: never},
		"its hook failed":           {in: Input{Failed: map[Key]Failure{{"c0", PostStart}: {ID: "r-c0"}}}, finished: never + onFailure},
	} {
		for _, policy := range []v1.RestartPolicy{never, onFailure, "Always"} {
			for _, hook := range []bool{false, true} {
				t.Run(fmt.Sprint(name, "/", policy, "/", hook), func(t *testing.T) {
					pod := newPod(policy, 0, 0, 1)
					pod.Annotations = map[string]string{keys.ConfigSource: tt.source}
					if hook {
						decorate(pod, 2|64)
					}
					c := running("c0")
					if tt.change != nil {
						tt.change(&c)
					}
					in := tt.in
					in.Want, in.Admitted, in.Now, in.Grace = pod, true, t0.Add(time.Second), time.Minute
					if in.Deleting || in.End != nil || !in.ShutdownSince.IsZero() {
						in.Stopping = t0
					}
					in.Observed = Observed{Sandboxes: ready, Containers: []Container{c}}
					if tt.sandbox != nil {
						in.Observed.Sandboxes = tt.sandbox
					}
					d := Decide(in)
					wantOp := StopContainer
					if hook && c.State == Running {
						wantOp = PreStop
					}
					if len(d.Start) != 1 || d.Start[0].Op != wantOp {
						t.Fatalf("got %+v", d)
					}
					c.State, c.FinishedAt = Exited, t0
					after := Input{Want: pod, Admitted: true, Now: t0, Observed: Observed{Sandboxes: lost, Containers: []Container{c}}}
					if a := d.Start[0]; StoresInterruption(pod, a) {
						after.Interrupted = map[string]Interruption{a.ID: a.Interrupts}
					}
					if want := strings.Contains(tt.finished, string(policy)); IsFinished(after) != want {
						t.Errorf("the pod has finished: %v, want %v; %+v", IsFinished(after), want, d.Start[0])
					}
					if want := strings.Contains(tt.failed, string(policy)); IsFinished(after) && Completed(after, c) == want {
						t.Errorf("the container has failed: %v, want %v", !want, want)
					}
				})
			}
		}
	}
}

// TestInterruptedInit checks that an init container that the node has interrupted runs again, although it exited with 0 and the machine
// stays up. It does not complete the pod's initialization.
func TestInterruptedInit(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure, v1.RestartPolicyAlways} {
		pod := newPod(policy, 1, 0, 1)
		in := Input{Want: pod, Admitted: true, Now: t0, ShutdownSince: t0, Stopping: t0, Grace: time.Minute,
			Observed: Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true}}, Containers: []Container{running("i0")}}}
		a := Decide(in).Start[0]
		if !StoresInterruption(pod, a) {
			t.Errorf("%s: %+v is not stored", policy, a)
		}
		in.ShutdownSince, in.Stopping, in.Interrupted = time.Time{}, time.Time{}, map[string]Interruption{a.ID: a.Interrupts}
		c := exited("i0", 0, 0, t0)
		c.ID = a.ID
		in.Observed.Containers = []Container{c}
		d := Decide(in)
		if never := policy == v1.RestartPolicyNever; IsFinished(in) != never || len(d.Start) != 1 ||
			!never && (d.Start[0].Op != StartContainer || d.Start[0].Container != "i0") {
			t.Errorf("%s: finished %v, %+v", policy, IsFinished(in), d)
		}
	}
}

// TestInterruptedStops checks that a container that an earlier agent has recorded as interrupted is stopped, although the reason for the
// stop is gone, because the container may already have got its stop signal. Until the source of the pod has reported, the container is not
// stopped.
func TestInterruptedStops(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure} {
		for _, kind := range []Interruption{CutOff, Replaced} {
			c := running("c0")
			in := Input{Want: newPod(policy, 0, 0, 1), Admitted: true, Now: t0, Grace: time.Minute, Interrupted: map[string]Interruption{c.ID: kind},
				Observed: Observed{Sandboxes: []Sandbox{{ID: "s", Ready: true}}, Containers: []Container{c}}}
			d := Decide(in)
			if len(d.Start) != 1 || d.Start[0].Op != StopContainer || d.Start[0].ID != c.ID || max(d.Start[0].Interrupts, kind) != kind {
				t.Errorf("%s, %v: got %+v", policy, kind, d)
			}
			in.Hold, in.Want = true, nil
			if d := Decide(in); len(d.Start) > 0 {
				t.Errorf("%s, %v, the source is silent: got %+v", policy, kind, d)
			}
		}
	}
}
