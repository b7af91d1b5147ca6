package ctrd

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListContainers lists the containers that a filter lets through, newest first.
func (r *Runtime) ListContainers(_ context.Context, req *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	out := &api.ListContainersResponse{}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.wholeIDs(req.GetFilter())
	for _, c := range r.podContainers.among(r.containers, f.GetLabelSelector()) {
		if !c.passes(f) {
			continue
		}
		cfg := proto.CloneOf(&api.ContainerConfig{
			Metadata: c.config.GetMetadata(), Image: c.config.GetImage(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		})
		out.Containers = append(out.Containers, &api.Container{
			Id: c.rec.ID, PodSandboxId: c.rec.Sandbox, Metadata: cfg.GetMetadata(), Image: cfg.GetImage(), ImageRef: c.rec.ImageID, ImageId: c.rec.ImageID,
			State: c.state(), CreatedAt: nanos(c.rec.CreatedAt), Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		})
	}
	slices.SortFunc(out.Containers, func(a, b *api.Container) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.Id, b.Id))
	})
	return out, nil
}

// Running calls f with each container that runs, in no order, as it would be listed but without
// annotations. It makes no copies for those who ask again and again: f neither changes nor keeps
// what it is given, is short and asks nothing of r.
func (r *Runtime) Running(f func(*api.Container)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out api.Container
	for _, c := range r.containers {
		if c.state() != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		out.Id, out.PodSandboxId, out.Metadata, out.Image = c.rec.ID, c.rec.Sandbox, c.config.GetMetadata(), c.config.GetImage()
		out.ImageRef, out.ImageId, out.State, out.CreatedAt, out.Labels = c.rec.ImageID, c.rec.ImageID, c.state(), nanos(c.rec.CreatedAt), c.config.GetLabels()
		f(&out)
	}
}

// Count is how many sandboxes are ready, and how many containers there are in each state.
func (r *Runtime) Count() (ready int, states map[api.ContainerState]int) {
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

// wholeIDs returns a filter with whole IDs in place of their beginnings. Runtime.mu is held.
func (r *Runtime) wholeIDs(f *api.ContainerFilter) *api.ContainerFilter {
	return &api.ContainerFilter{
		Id: wholeID(r.containers, f.GetId()), PodSandboxId: wholeID(r.sandboxes, f.GetPodSandboxId()),
		State: f.GetState(), LabelSelector: f.GetLabelSelector(),
	}
}

// passes says whether a filter with whole IDs lets a container through. Runtime.mu is held.
func (c *container) passes(f *api.ContainerFilter) bool {
	return is(c.rec.ID, f.GetId()) && is(c.rec.Sandbox, f.GetPodSandboxId()) &&
		(f.GetState() == nil || f.GetState().GetState() == c.state()) && matches(c.config.GetLabels(), f.GetLabelSelector())
}
