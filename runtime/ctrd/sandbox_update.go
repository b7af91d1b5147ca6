package ctrd

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdatePodSandboxResources stores the pod's total resources and its overhead after a resize
// (KEP-5328). The caller has already changed the pod's cgroup, which does not belong to this
// package. The stored values are part of the verbose status and survive a restart of the agent.
func (r *Runtime) UpdatePodSandboxResources(
	ctx context.Context, req *api.UpdatePodSandboxResourcesRequest,
) (*api.UpdatePodSandboxResourcesResponse, error) {
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if err := r.checkOwner(ctx, s, "update sandbox"); err != nil {
		return nil, err
	}
	if err := r.ops.LockContext(ctx, s.rec.ID); err != nil {
		return nil, err
	}
	defer r.ops.Unlock(s.rec.ID)
	resized := &api.LinuxPodSandboxConfig{Overhead: proto.CloneOf(req.GetOverhead()), Resources: proto.CloneOf(req.GetResources())}
	r.cgroups.Forget(s.config.GetLinux().GetCgroupParent()) // its limits have changed
	if proto.Equal(resized, s.resized) {
		return &api.UpdatePodSandboxResourcesResponse{}, nil
	}
	packed, err := encode(resized)
	if err != nil {
		return nil, err
	}
	if err := r.changeRecord(r.sandboxPath(s.rec.ID), map[string][]byte{"resized": packed}); err != nil {
		return nil, fmt.Errorf("update sandbox %s: %w", s.rec.ID, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.resized = resized
	return &api.UpdatePodSandboxResourcesResponse{}, nil
}

// podResources returns the pod's total resources and its overhead after the last resize. The caller
// holds Runtime.mu.
func (s *sandbox) podResources() (resources, overhead *api.LinuxContainerResources) {
	if s.resized != nil {
		return s.resized.GetResources(), s.resized.GetOverhead()
	}
	return s.config.GetLinux().GetResources(), s.config.GetLinux().GetOverhead()
}
