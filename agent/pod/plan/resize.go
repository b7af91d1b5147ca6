package plan

import "github.com/islet-edge/islet/internal/podspec"

// A pod's CPU and memory may change while it runs (KEP-1287, KEP-5419). The allocation is decided and stored first. The
// resources of running containers are then compared with it, so a resize goes on after a restart of the agent.
//
//	wanted --Allocate--> allocated (Want), or Pending
//	                         |
//	                         v
//	Sizes, Level <-- compared --> Container.Resources, Leveled
//	                         |
//	                         +-- a resource with RestartContainer differs: StopContainer, then a new attempt
//	                         '-- otherwise: Resize
//
// https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/

// Resources are the limits and shares of a container, or of a pod as a whole, in the kernel's units. Zero means no limit. It
// is not compared, since a limit of a running container cannot be removed.
type Resources struct {
	Shares int64 // of CPU, as cgroup v1 counts them
	Milli  int64 // thousandths of a CPU, at most
	Memory int64 // bytes, at most
}

// Held returns the resources for figures of the CRI. quota and period are in microseconds.
func Held(shares, quota, period, memory int64) Resources {
	out := Resources{Shares: shares, Memory: max(memory, 0)}
	if quota > 0 && period > 0 {
		out.Milli = quota * 1000 / period
	}
	return out
}

// holds reports whether r has the wanted values.
func (r Resources) holds(want Resources) bool {
	same := func(have, want int64) bool { return want == 0 || have == want }
	return same(r.Shares, want.Shares) && same(r.Milli, want.Milli) && same(r.Memory, want.Memory)
}

// A Size is the allocated resources of a container.
type Size struct {
	Resources
	Anew string // as text, the resources that need a restart by its resizePolicy; empty: none
}

// Pending is the reason why a pod does not have the resources that it is wanted with.
type Pending struct {
	Reason  string // v1.PodReasonDeferred, v1.PodReasonInfeasible; empty: it has them, or nothing is decided yet
	Message string
	// Generation is that of the wanted pod, Allocated that of the version whose resources it has.
	Generation, Allocated int64
}

// Outgrown reports whether a container has to restart to get its allocated resources, by its resizePolicy.
func Outgrown(in Input, c Container) bool {
	want := in.Sizes[c.Name].Anew
	return want != "" && c.Anew != "" && c.Anew != want
}

// Fits reports whether a running container has its allocated resources. The resources that the runtime accepted count, also
// if it shows others. If it shows none, Fits returns false until it has accepted some.
func Fits(in Input, c Container) bool {
	want, known := in.Sizes[c.Name]
	if !known {
		return true
	}
	if got, ok := in.Sized[c.ID]; ok {
		return got == want.Resources
	}
	return c.Resources != nil && c.Resources.holds(want.Resources)
}

// Resizing reports whether a running container, or the pod as a whole, is known to lack its allocated resources.
func Resizing(in Input) bool {
	sb, ok := in.Seen.Sandbox()
	if !ok || !sb.Ready {
		return false
	}
	if in.Leveled != nil && !in.Leveled.holds(in.Level) {
		return true
	}
	for c := range resizable(in) {
		_, accepted := in.Sized[c.ID]
		silent := !accepted && c.Resources == nil // it may fit
		if Outgrown(in, c) || !Fits(in, c) && !silent {
			return true
		}
	}
	return false
}

// resizable iterates over the newest containers that run in the newest sandbox.
func resizable(in Input) func(func(Container) bool) {
	return func(yield func(Container) bool) {
		sb, _ := in.Seen.Sandbox()
		for kind, ctr := range podspec.Containers(&in.Want.Spec) {
			c, ok := in.Seen.Last(ctr.Name)
			if ok && kind != podspec.Ephemeral && c.State == Running && c.SandboxID == sb.ID && !yield(c) {
				return
			}
		}
	}
}

// NeedResize returns the containers whose resources Resize has to change. Containers that restart for a resize are not
// among them.
func NeedResize(in Input) (all []Container) {
	for c := range resizable(in) {
		if !Outgrown(in, c) && !Fits(in, c) {
			all = append(all, c)
		}
	}
	return all
}

// allocate has the node decide about resources that the pod is wanted with and does not have.
func (p *planner) allocate() {
	if p.Undecided {
		p.start(Action{Op: Allocate})
	} else {
		p.cancel(Allocate)
	}
}

// resize changes the resources of running containers to the allocated ones. Containers that restart for a resize stop
// first, as under a kubelet, so that others can get their resources.
func (p *planner) resize(sb Sandbox) {
	for subject, f := range p.Busy {
		if f.Op == Resize && f.Hash != p.Spec {
			p.Cancel = append(p.Cancel, subject)
		}
	}
	for c := range resizable(p.Input) {
		if Outgrown(p.Input, c) {
			return
		}
	}
	if p.Unsure || p.Leveled != nil && !p.Leveled.holds(p.Level) || len(NeedResize(p.Input)) > 0 {
		p.start(Action{Op: Resize, ID: sb.ID, Hash: p.Spec})
	}
}
