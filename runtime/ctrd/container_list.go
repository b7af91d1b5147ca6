package ctrd

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListContainers lists the containers that match a filter, the newest first.
func (r *Runtime) ListContainers(_ context.Context, req *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	out := &api.ListContainersResponse{}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.expandIDs(req.GetFilter())
	for _, c := range r.podContainers.findCandidates(r.containers, f.GetLabelSelector()) {
		if !c.matchesFilter(f) {
			continue
		}
		cfg := proto.CloneOf(&api.ContainerConfig{
			Metadata: c.config.GetMetadata(), Image: c.config.GetImage(),
			Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
		out.Containers = append(out.Containers, &api.Container{
			Id: c.rec.ID, PodSandboxId: c.rec.Sandbox, Metadata: cfg.GetMetadata(), Image: cfg.GetImage(),
			ImageRef: c.rec.ImageID, ImageId: c.rec.ImageID,
			State: c.state(), CreatedAt: unixNanos(c.rec.CreatedAt), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		})
	}
	slices.SortFunc(out.Containers, func(a, b *api.Container) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.Id, b.Id))
	})
	return out, nil
}

// ForEachRunning calls the caller's function for each running container, in no particular order. The argument has the same fields as a
// container in ListContainers, except for the annotations. ForEachRunning copies nothing, so it is cheap enough for frequent calls. The
// caller's function must return soon, must not change or retain its argument, and must not call a method of the Runtime.
func (r *Runtime) ForEachRunning(f func(*api.Container)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out api.Container
	for _, c := range r.containers {
		if c.state() != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		out.Id, out.PodSandboxId, out.Metadata, out.Image = c.rec.ID, c.rec.Sandbox, c.config.GetMetadata(), c.config.GetImage()
		out.ImageRef, out.ImageId, out.State = c.rec.ImageID, c.rec.ImageID, c.state()
		out.CreatedAt, out.Labels = unixNanos(c.rec.CreatedAt), c.config.GetLabels()
		f(&out)
	}
}

// CountContainers returns the number of ready sandboxes and the number of containers in each state.
func (r *Runtime) CountContainers() (ready int, states map[api.ContainerState]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.state() == api.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	states = map[api.ContainerState]int{}
	for _, c := range r.containers {
		states[c.state()]++
	}
	return ready, states
}

// expandIDs returns a copy of the filter with prefixes of IDs replaced by complete IDs. The caller
// holds Runtime.mu.
func (r *Runtime) expandIDs(f *api.ContainerFilter) *api.ContainerFilter {
	return &api.ContainerFilter{
		Id: expandID(r.containers, f.GetId()), PodSandboxId: expandID(r.sandboxes, f.GetPodSandboxId()),
		State: f.GetState(), LabelSelector: f.GetLabelSelector(),
	}
}

// matchesFilter reports whether a filter with complete IDs matches the container. The caller holds
// Runtime.mu.
func (c *container) matchesFilter(f *api.ContainerFilter) bool {
	return idMatches(c.rec.ID, f.GetId()) && idMatches(c.rec.Sandbox, f.GetPodSandboxId()) &&
		(f.GetState() == nil || f.GetState().GetState() == c.state()) && matchLabels(c.config.GetLabels(), f.GetLabelSelector())
}
