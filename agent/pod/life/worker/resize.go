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

// resize sets the resources of the containers of a pod, and of the pod as a whole, to the allocated ones. The limits
// of the pod grow before those of its containers change, and shrink after that. Containers that get less come
// before those that get more. Each step may be repeated, so it does not matter where the last attempt ended.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1287-in-place-update-pod-resources
func (e *Executor) resize(ctx context.Context, in plan.Input, a plan.Action) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	n := e.cfg.Node()
	pod := withAddresses(in.Want, in.Seen, n)
	list := lessFirst(in, plan.NeedResize(in))
	if err := e.aboveUsage(ctx, in, list); err != nil {
		return err
	}
	if err := e.notify(ctx, a.ID, pod, n); err != nil {
		return err
	}
	if err := e.cfg.Hooks.Grow(ctx, pod); err != nil {
		return err
	}
	for _, c := range list {
		_, ctr := podspec.Find(&pod.Spec, c.Name)
		req := &api.UpdateContainerResourcesRequest{ContainerId: c.ID, Linux: translate.Resized(pod, ctr, n)}
		if _, err := e.cfg.Runtime.UpdateContainerResources(ctx, req); ignoreNotFound(err) != nil {
			return fmt.Errorf("update the resources of container %s: %w", c.Name, err)
		}
	}
	return e.cfg.Hooks.Shrink(ctx, pod)
}

// lessFirst sorts containers so that those that get less come first: others can then get the rest.
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

// aboveUsage returns an error if a new memory limit is below what its container uses now: the kernel would kill the
// container. It is called before anything changes.
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

// notify tells the runtime the resources of the pod as a whole (KEP-5328). A runtime that does not implement the
// call needs no such notice.
func (e *Executor) notify(ctx context.Context, sandbox string, pod *v1.Pod, n translate.Node) error {
	whole, overhead := translate.Whole(pod, n)
	_, err := e.cfg.Runtime.UpdatePodSandboxResources(ctx, &api.UpdatePodSandboxResourcesRequest{
		PodSandboxId: sandbox, Resources: whole, Overhead: overhead,
	})
	if err == nil || errdefs.IsNotImplemented(err) || strings.Contains(err.Error(), "not implemented") { // containerd 2.2 sends no code
		return nil
	}
	return fmt.Errorf("the runtime refuses the resources of the pod: %w", err)
}

// sizes are the resources of a worker's pod, as far as they are known.
type sizes struct {
	wanted   map[string]plan.Size      // of the wanted spec, by container
	whole    plan.Resources            // of the wanted spec, of the pod as a whole
	accepted map[string]plan.Resources // by the runtime, by container ID
	offered  map[string]plan.Resources // by the Resize in flight, by container ID
	leveled  *plan.Resources           // nil: not known
	unsure   bool                      // until a Resize has succeeded
}

// show adds the wanted resources and the known ones to in.
func (s *sizes) show(in *plan.Input) {
	in.Sizes, in.Level, in.Sized = s.wanted, s.whole, maps.Clone(s.accepted)
	if sb, ok := in.Seen.Sandbox(); ok && sb.Ready && s.leveled == nil {
		if sb.Hash == in.Spec {
			s.leveled = new(s.whole)
		} else { // the sandbox was made with other resources, or was resized since
			s.unsure = true
		}
	}
	in.Leveled, in.Unsure = s.leveled, s.unsure
}

// offer notes the resources that a Resize is about to set.
func (s *sizes) offer(in plan.Input) {
	s.offered = map[string]plan.Resources{}
	for _, c := range plan.NeedResize(in) {
		s.offered[c.ID] = in.Sizes[c.Name].Resources
	}
}

// end notes how a Resize ended: ok, and to the current spec or not. After a failure nothing is known for certain.
func (s *sizes) end(ok, current bool) {
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
	s.offered, s.unsure = nil, !ok || !current
	if ok && current {
		s.leveled = new(s.whole)
	}
}

// forget drops the resources of containers that are gone.
func (s *sizes) forget(seen plan.Observed) {
	maps.DeleteFunc(s.accepted, func(id string, _ plan.Resources) bool {
		return !slices.ContainsFunc(seen.Containers, func(c plan.Container) bool { return c.ID == id })
	})
}
