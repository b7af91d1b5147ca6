package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestInitInNewSandbox checks that the init containers of a pod run again in a new sandbox, before the main containers. The states of the
// former sandbox's containers do not matter. A pod counts as initialized only if the new sandbox has a main container.
func TestInitInNewSandbox(t *testing.T) {
	in := func(sandbox string, c Container, state State, attempt uint32) Container {
		c.ID, c.SandboxID, c.State, c.Attempt = fmt.Sprint(c.Name, sandbox, attempt), sandbox, state, attempt
		if state == Created {
			c.StartedAt, c.FinishedAt = time.Time{}, time.Time{}
		}
		return c
	}
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure} {
		for _, code := range []int32{0, 137} {
			for _, main := range []State{Created, Exited} {
				pod := newPod(policy, 2, 1, 1)
				c0, i0, i1, s0 := exited("c0", code, 0, t0), exited("i0", 0, 0, t0), exited("i1", 0, 0, t0), running("s0")
				seen := Observed{
					Sandboxes:  []Sandbox{{ID: "old"}, {ID: "new", Attempt: 1, Ready: true}},
					Containers: []Container{in("old", i0, Exited, 0), in("old", i1, Exited, 0), in("old", s0, Exited, 0), in("old", c0, main, 4)},
				}
				if policy == v1.RestartPolicyOnFailure && code == 0 && main == Exited {
					continue // the pod has succeeded
				}
				var started []string
				for range 6 {
					d := Decide(Input{Want: pod, Observed: seen, Now: t0, Admitted: true, Spec: "s", Applied: "s"})
					i := slices.IndexFunc(d.Start, func(a Action) bool { return a.Op == StartContainer })
					if i < 0 {
						break
					}
					a := d.Start[i]
					started = append(started, a.Container)
					c, state := exited(a.Container, 0, 0, t0), Exited
					if a.Container[0] != 'i' {
						c, state = running(a.Container), Running
					}
					seen.Containers = append(seen.Containers, in("new", c, state, a.Attempt))
				}
				if want := []string{"i0", "s0", "i1", "c0"}; !slices.Equal(started, want) {
					t.Errorf("%s, exit code %d, state %d: started %q, not %q", policy, code, main, started, want)
				}
			}
		}
	}
}
