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
)

// Sizes tell what the resources of a pod's containers, and of the pod as a whole, are to
// the runtime.
type Sizes func(pod *v1.Pod) (containers map[string]plan.Size, whole plan.Resources)

// resize gives the containers of a pod, and the pod as a whole, its allocated resources.
// What the pod is to get more of it gets first, what it is to get less of last; and of the
// containers those that get less are first. Each step may be repeated, so it does not
// matter where the last attempt ended.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/1287-in-place-update-pod-resources
func (e *Executor) resize(ctx context.Context, in plan.Input, a plan.Action) error {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	n := e.cfg.Node()
	pod := known(in.Want, in.Seen, n)
	list := lessFirst(in, plan.Unfit(in))
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
		if _, err := e.cfg.Runtime.UpdateContainerResources(ctx, req); gone(err) != nil {
			return fmt.Errorf("update the resources of container %s: %w", c.Name, err)
		}
	}
	return e.cfg.Hooks.Shrink(ctx, pod)
}

// lessFirst orders containers so that what one gives back another can get.
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
	slices.SortStableFunc(list, func(a, b plan.Container) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

// lessMemory reports whether a container is to have a memory limit below that of now.
func lessMemory(c plan.Container, want plan.Size) bool {
	return c.Resources != nil && want.Memory > 0 && (c.Resources.Memory == 0 || want.Memory < c.Resources.Memory)
}

// aboveUsage refuses memory limits below what containers use now, before anything
// changes: the kernel would kill them.
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
			low = append(low, fmt.Sprintf("attempting to set container %q memory limit (%d) below current usage (%d)", c.Name, limit, usage.GetValue()))
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

// notify tells the runtime what the pod as a whole is to have (KEP-5328). One that does
// not know the call need not know that.
func (e *Executor) notify(ctx context.Context, sandbox string, pod *v1.Pod, n translate.Node) error {
	whole, overhead := translate.Whole(pod, n)
	_, err := e.cfg.Runtime.UpdatePodSandboxResources(ctx, &api.UpdatePodSandboxResourcesRequest{PodSandboxId: sandbox, Resources: whole, Overhead: overhead})
	if err == nil || errdefs.IsNotImplemented(err) || strings.Contains(err.Error(), "not implemented") { // containerd 2.2 says it without the code
		return nil
	}
	return fmt.Errorf("the runtime refuses the resources of the pod: %w", err)
}

// sizes is what a worker knows of its pod's resources. The owner holds worker.mu.
type sizes struct {
	wanted   map[string]plan.Size // of worker.spec
	whole    plan.Resources       // the same
	accepted map[string]plan.Resources
	offered  map[string]plan.Resources // by the Resize in flight
	leveled  *plan.Resources           // nil: not known
	unsure   bool                      // until a Resize has succeeded
}

// show adds to in what is wanted, and what is known to be so.
func (s *sizes) show(in *plan.Input) {
	in.Sizes, in.Level, in.Sized = s.wanted, s.whole, maps.Clone(s.accepted)
	if sb, ok := in.Seen.Sandbox(); ok && sb.Ready && s.leveled == nil {
		if sb.Hash == in.Spec {
			s.leveled = new(s.whole)
		} else { // it was made with something else, or was resized since, or nobody knows
			s.unsure = true
		}
	}
	in.Leveled, in.Unsure = s.leveled, s.unsure
}

// offer notes what a Resize is about to set.
func (s *sizes) offer(in plan.Input) {
	s.offered = map[string]plan.Resources{}
	for _, c := range plan.Unfit(in) {
		s.offered[c.ID] = in.Sizes[c.Name].Resources
	}
}

// end notes how a Resize ended. After a failure nothing is known for certain.
func (s *sizes) end(ok, current bool) {
	for id, r := range s.offered {
		if s.accepted == nil {
			s.accepted = map[string]plan.Resources{}
		}
		if s.accepted[id] = r; !ok {
			delete(s.accepted, id)
		}
	}
	s.offered = nil
	if s.unsure = !ok || !current; ok && current {
		s.leveled = new(s.whole)
	}
}

// forget drops what is known of containers that are gone.
func (s *sizes) forget(seen plan.Observed) {
	maps.DeleteFunc(s.accepted, func(id string, _ plan.Resources) bool {
		return !slices.ContainsFunc(seen.Containers, func(c plan.Container) bool { return c.ID == id })
	})
}
