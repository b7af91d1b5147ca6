package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/agent/pod/spec/translate"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/sorting"
)

// Sizes returns the resources of a pod's containers, and of the pod as a whole, in the units of the runtime.
type Sizes func(pod *v1.Pod) (containers map[string]plan.Size, whole plan.Resources)

// resizePod applies the allocated resources to the containers of a pod and to the pod as a whole. Limits of the pod are
// raised before the limits of its containers change, and lowered after that. Containers whose resources decrease are
// updated first. All steps are idempotent, so resizePod can be repeated after a failure.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1287-in-place-update-pod-resources
func (e *Executor) resizePod(ctx context.Context, in plan.Input, a plan.Action) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	n := e.cfg.Node()
	pod := withAddresses(in.Want, in.Observed, n)
	list := lessFirst(in, plan.NeedResize(in))
	if err := e.aboveUsage(ctx, in, list); err != nil {
		return err
	}
	if err := e.updateSandbox(ctx, a.ID, pod, n); err != nil {
		return err
	}
	if err := e.cfg.Hooks.Grow(ctx, pod); err != nil {
		return err
	}
	for _, c := range list {
		_, ctr := podspec.Find(&pod.Spec, c.Name)
		req := &api.UpdateContainerResourcesRequest{ContainerId: c.ID, Linux: translate.ContainerUpdate(pod, ctr, n)}
		if _, err := e.cfg.Runtime.UpdateContainerResources(ctx, req); ignoreNotFound(err) != nil {
			return fmt.Errorf("update the resources of container %s: %w", c.Name, err)
		}
	}
	return e.cfg.Hooks.Shrink(ctx, pod)
}

// lessFirst sorts containers so that containers whose resources decrease come first. Their resources are then available
// to the other containers.
func lessFirst(in plan.Input, list []plan.Container) []plan.Container {
	rank := func(c plan.Container) int {
		switch want := in.Sizes[c.Name]; {
		case c.Resources == nil:
			return 0
		case lessMemory(c, want):
			return -2
		case want.Milli > 0 && want.Milli < c.Resources.Milli:
			return -1
		}
		return 0
	}
	sorting.StableBy(list, func(a, b plan.Container) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

// lessMemory reports whether the new memory limit of a container is below its current one.
func lessMemory(c plan.Container, want plan.Size) bool {
	return c.Resources != nil && want.Memory > 0 && (c.Resources.Memory == 0 || want.Memory < c.Resources.Memory)
}

// aboveUsage returns an error if a container's new memory limit is not above its current memory usage. With such a
// limit, the kernel would kill the container. It is called before any limit is changed.
func (e *Executor) aboveUsage(ctx context.Context, in plan.Input, list []plan.Container) error {
	var low []string
	for _, c := range list {
		limit := in.Sizes[c.Name].Memory
		if !lessMemory(c, in.Sizes[c.Name]) {
			continue
		}
		r, err := e.cfg.Runtime.ContainerStats(ctx, &api.ContainerStatsRequest{ContainerId: c.ID})
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read the memory usage of container %s: %w", c.Name, err)
		}
		switch usage := r.GetStats().GetMemory().GetUsageBytes(); {
		case usage == nil:
			low = append(low, fmt.Sprintf("missing container %q memory usage", c.Name))
		case usage.GetValue() >= uint64(limit):
			low = append(low, fmt.Sprintf("attempting to set container %q memory limit (%d) below current usage (%d)",
				c.Name, limit, usage.GetValue()))
		}
	}
	switch len(low) {
	case 0:
		return nil
	case 1:
		return errors.New("cannot decrease memory limits: " + low[0])
	}
	return fmt.Errorf("cannot decrease memory limits: [%s]", strings.Join(low, ", "))
}

// updateSandbox sends the resources of the pod as a whole to the runtime (KEP-5328). It returns nil if the runtime does not
// implement the call.
func (e *Executor) updateSandbox(ctx context.Context, sandbox string, pod *v1.Pod, n translate.Node) error {
	whole, overhead := translate.SandboxUpdate(pod, n)
	_, err := e.cfg.Runtime.UpdatePodSandboxResources(ctx, &api.UpdatePodSandboxResourcesRequest{
		PodSandboxId: sandbox, Resources: whole, Overhead: overhead,
	})
	if err == nil || errdefs.IsNotImplemented(err) {
		return nil
	}
	if strings.Contains(err.Error(), "not implemented") { // containerd 2.2 returns no error code
		return nil
	}
	return fmt.Errorf("update the resources of the pod in the runtime: %w", err)
}

// sizes contains the allocated resources of a worker's pod, and the resources that the runtime
// has accepted.
type sizes struct {
	wanted          map[string]plan.Size      // allocated to the containers, by name
	whole           plan.Resources            // allocated to the pod as a whole
	accepted        map[string]plan.Resources // accepted by the runtime, by container ID
	offered         map[string]plan.Resources // sent to the runtime by the Resize in flight, by container ID
	appliedPodLevel *plan.Resources           // set for the pod as a whole; nil if unknown
	unknown         bool                      // the pod's actual resources are unknown until a Resize has succeeded
}

// setFields sets the fields of the input that are about resources.
func (s *sizes) setFields(in *plan.Input) {
	in.Sizes, in.PodLevel, in.Sized = s.wanted, s.whole, maps.Clone(s.accepted)
	if sb, ok := in.Observed.Sandbox(); ok && sb.Ready && s.appliedPodLevel == nil {
		if sb.Hash == in.Spec && !in.Resized {
			s.appliedPodLevel = new(s.whole)
		} else { // the sandbox was created with other resources, or the pod was resized before a restart of the agent
			s.unknown = true
		}
	}
	in.Leveled, in.Unsure = s.appliedPodLevel, s.unknown
}

// recordOffer records the resources that a Resize is about to send to the runtime.
func (s *sizes) recordOffer(in plan.Input) {
	s.offered = map[string]plan.Resources{}
	for _, c := range plan.NeedResize(in) {
		s.offered[c.ID] = in.Sizes[c.Name].Resources
	}
}

// recordResult records the result of a Resize. If the Resize failed, or was a Resize to another spec than the current one, the
// pod's actual resources are unknown.
func (s *sizes) recordResult(ok, current bool) {
	for id, r := range s.offered {
		if s.accepted == nil {
			s.accepted = map[string]plan.Resources{}
		}
		if ok {
			s.accepted[id] = r
		} else {
			delete(s.accepted, id)
		}
	}
	s.offered, s.unknown = nil, !ok || !current
	if ok && current {
		s.appliedPodLevel = new(s.whole)
	}
}

// pruneAccepted deletes the entries of containers that no longer exist.
func (s *sizes) pruneAccepted(seen plan.Observed) {
	maps.DeleteFunc(s.accepted, func(id string, _ plan.Resources) bool {
		return !slices.ContainsFunc(seen.Containers, func(c plan.Container) bool { return c.ID == id })
	})
}
