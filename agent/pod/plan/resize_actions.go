package plan

import "github.com/islet-edge/islet/internal/podspec"

// A pod's CPU and memory may change while it runs (KEP-1287, KEP-5419). First, the node decides whether to allocate
// the changed resources, and stores this decision. It then compares the resources of the running containers with the
// allocated ones, so that a resize continues after a restart of the agent.
//
//	wanted --Allocate--> allocated (Want), or Pending
//	                         |
//	                         v
//	Sizes, PodLevel <-- compared --> Container.Resources, Leveled
//	                         |
//	                         +-- a resource with RestartContainer differs: StopContainer, then a new attempt
//	                         '-- otherwise: Resize
//
// https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/

// Resources contains the CPU shares, CPU limit, memory limit and memory request of a container or of a pod. Zero means
// that there is no limit. Comparisons ignore a wanted value of zero, because a limit of a running container cannot
// be removed.
type Resources struct {
	Shares int64 // CPU shares, as in cgroup v1
	Milli  int64 // CPU limit in thousandths of a CPU
	Memory int64 // memory limit in bytes
	// MemoryRequest is the result of the function MemoryRequest, or zero if the request is unknown. The protection, the
	// throttling and the swap of a cgroup depend on the request, and the runtime does not report it.
	MemoryRequest int64
}

// MemoryRequest returns a number that is not zero, and that differs if the memory requests differ, or if a limit of the
// pod as a whole throttles only one of the two cgroups.
func MemoryRequest(bytes int64, byPod bool) int64 {
	if byPod {
		return bytes*4 + 3
	}
	return bytes*4 + 1
}

// FromCRI converts values of the CRI to Resources. The CPU quota and its period are in microseconds.
func FromCRI(shares, quota, period, memory int64) Resources {
	out := Resources{Shares: shares, Memory: max(memory, 0)}
	if quota > 0 && period > 0 {
		out.Milli = quota * 1000 / period
	}
	return out
}

// hasValues reports whether the resources have the wanted values. It ignores wanted values of
// zero, and an unknown memory request.
func (r Resources) hasValues(want Resources) bool {
	return r.hasLimits(want) && (r.MemoryRequest == 0 || r.MemoryRequest == want.MemoryRequest)
}

// hasLimits is like hasValues for the values that the runtime reports.
func (r Resources) hasLimits(want Resources) bool {
	same := func(have, want int64) bool { return want == 0 || have == want }
	return same(r.Shares, want.Shares) && same(r.Milli, want.Milli) && same(r.Memory, want.Memory)
}

// A Size contains the resources that are allocated to a container.
type Size struct {
	Resources
	RestartResources string // text with the resources whose resizePolicy requires a restart; empty if there are none
}

// Pending contains the reason why a pod does not have the resources in its wanted spec.
type Pending struct {
	Reason  string // v1.PodReasonDeferred or v1.PodReasonInfeasible; empty if the pod has the resources or the node has not decided
	Message string
	// Generation is the generation of the wanted pod. Allocated is the generation whose resources are allocated to
	// the pod.
	Generation, Allocated int64
}

// ResizeNeedsRestart reports whether the resizePolicy of a container requires a restart to apply its allocated resources.
func ResizeNeedsRestart(in Input, c Container) bool {
	want := in.Sizes[c.Name].RestartResources
	return want != "" && c.RestartResources != "" && c.RestartResources != want
}

// ResourcesApplied reports whether a running container has its allocated resources. It compares the allocated resources
// with the resources that the runtime last accepted, even if the runtime reports other values. If the runtime has not
// accepted any resources yet, it compares the resources that the runtime reports, and the memory request at the
// container's creation. If the runtime reports no resources, ResourcesApplied returns false. It returns false if
// the memory request may differ from the one at the creation, because the pod was resized before the agent started. If the
// request at the creation is unknown, ResourcesApplied returns false while the resources of the pod differ or are unknown.
func ResourcesApplied(in Input, c Container) bool {
	want, known := in.Sizes[c.Name]
	if !known {
		return true
	}
	if got, ok := in.Sized[c.ID]; ok {
		return got == want.Resources
	}
	if c.Resources == nil || !c.Resources.hasValues(want.Resources) {
		return false
	}
	unknown := c.Resources.MemoryRequest == 0 && (in.Unsure || in.Leveled.lacks(in.PodLevel))
	return want.MemoryRequest == 0 || !in.Resized && !unknown
}

// lacks reports whether the known resources of a pod as a whole are not the wanted ones.
func (r *Resources) lacks(want Resources) bool { return r != nil && !r.hasValues(want) }

// ResizeInProgress reports whether a running container or the pod as a whole still lacks its allocated
// resources. It ignores a container whose actual resources are unknown. After a restart of the agent, this is the memory
// request of each container of a pod that was resized.
func ResizeInProgress(in Input) bool {
	sb, ok := in.Observed.Sandbox()
	if !ok || !sb.Ready {
		return false
	}
	if in.Leveled.lacks(in.PodLevel) {
		return true
	}
	for c := range resizableContainers(in) {
		_, accepted := in.Sized[c.ID]
		silent := !accepted && (c.Resources == nil || in.Unsure && c.Resources.hasLimits(in.Sizes[c.Name].Resources))
		if ResizeNeedsRestart(in, c) || !ResourcesApplied(in, c) && !silent {
			return true
		}
	}
	return false
}

// resizableContainers iterates over the running containers of the newest sandbox, except ephemeral containers.
func resizableContainers(in Input) func(func(Container) bool) {
	return func(yield func(Container) bool) {
		sb, _ := in.Observed.Sandbox()
		for kind, ctr := range podspec.Containers(&in.Want.Spec) {
			c, ok := in.Observed.Newest(ctr.Name)
			if ok && kind != podspec.Ephemeral && c.State == Running && c.SandboxID == sb.ID && !yield(c) {
				return
			}
		}
	}
}

// NeedResize returns the containers whose resources Resize has to change. Containers that must restart for a resize
// are not included.
func NeedResize(in Input) (all []Container) {
	for c := range resizableContainers(in) {
		if !ResizeNeedsRestart(in, c) && !ResourcesApplied(in, c) {
			all = append(all, c)
		}
	}
	return all
}

// startAllocate starts Allocate if the wanted spec has resources on which the node has not decided yet.
func (p *planner) startAllocate() {
	if p.Undecided {
		p.startAction(Action{Op: Allocate})
	} else {
		p.cancelActions(Allocate)
	}
}

// startResize starts Resize if running containers do not have their allocated resources. It first waits until the containers
// that must restart for the resize have stopped. Their resources are then available to other containers. A kubelet does
// the same.
func (p *planner) startResize(sb Sandbox) {
	for subject, f := range p.InFlight {
		if f.Op == Resize && f.Hash != p.Spec {
			p.Cancel = append(p.Cancel, subject)
		}
	}
	for c := range resizableContainers(p.Input) {
		if ResizeNeedsRestart(p.Input, c) {
			return
		}
	}
	if p.Unsure || p.Leveled.lacks(p.PodLevel) || len(NeedResize(p.Input)) > 0 {
		p.startAction(Action{Op: Resize, ID: sb.ID, Hash: p.Spec})
	}
}
