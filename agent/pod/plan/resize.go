package plan

import "github.com/islet-edge/islet/internal/podspec"

// A pod's CPU and memory may change while it runs (KEP-1287, KEP-5419). What it is given
// is decided and stored first; what runs is then compared with that, so that it does not
// matter where an agent stopped.
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

// Resources are what the kernel holds a container, or a pod as a whole, to. A zero is no
// limit: limits cannot be taken away from what runs, so it is not compared.
type Resources struct {
	Shares int64 // of CPU, as cgroup v1 counts them
	Milli  int64 // thousandths of a CPU, at most
	Memory int64 // bytes, at most
}

// Held is what these figures of the CRI hold a container to; quota and period are
// microseconds.
func Held(shares, quota, period, memory int64) Resources {
	out := Resources{Shares: shares, Memory: max(memory, 0)}
	if quota > 0 && period > 0 {
		out.Milli = quota * 1000 / period
	}
	return out
}

// holds reports whether r is what is wanted.
func (r Resources) holds(want Resources) bool {
	same := func(have, want int64) bool { return want == 0 || have == want }
	return same(r.Shares, want.Shares) && same(r.Milli, want.Milli) && same(r.Memory, want.Memory)
}

// A Size is what the allocated resources of a container are to the runtime.
type Size struct {
	Resources
	Anew string // those that only a new attempt gets, by its resizePolicy, as text; empty: none
}

// Pending is why a pod does not have the resources that it is wanted with.
type Pending struct {
	Reason  string // v1.PodReasonDeferred, v1.PodReasonInfeasible; empty: it has them, or nothing is decided yet
	Message string
	// Generation is that of the pod which is wanted, Allocated of the one whose resources
	// it has.
	Generation, Allocated int64
}

// Outgrown reports whether a container was made with resources that it is to have others
// of, which its resizePolicy gives it by a restart only.
func Outgrown(in Input, c Container) bool {
	want := in.Sizes[c.Name].Anew
	return want != "" && c.Anew != "" && c.Anew != want
}

// Fits reports whether a container that runs has its allocated resources, as far as the
// kernel knows them. What the runtime accepted counts, also where it shows something else.
// One of which it shows nothing is not known to fit until it has accepted something.
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

// Resizing reports whether something of the pod runs that is yet to get the allocated
// resources, as far as is known.
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

// resizable visits the newest containers that run in the newest sandbox.
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

// Unfit lists the containers that Resize is to give other resources; those are not in it
// that restart for it.
func Unfit(in Input) (all []Container) {
	for c := range resizable(in) {
		if !Outgrown(in, c) && !Fits(in, c) {
			all = append(all, c)
		}
	}
	return all
}

// allocate has the node decide about resources that the pod is wanted with and does not
// have.
func (p *planner) allocate() {
	if p.Undecided {
		p.start(Action{Op: Allocate})
	} else {
		p.cancel(Allocate)
	}
}

// resize brings what runs to the allocated resources. Containers that restart for theirs
// stop first, as under a kubelet: what they had may be what others are to get.
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
	if p.Unsure || p.Leveled != nil && !p.Leveled.holds(p.Level) || len(Unfit(p.Input)) > 0 {
		p.start(Action{Op: Resize, ID: sb.ID, Hash: p.Spec})
	}
}
