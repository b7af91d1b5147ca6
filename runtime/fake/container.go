package fake

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer adds a container. The container's ID consists of the sandbox ID, the name and the attempt.
func (r *Runtime) CreateContainer(_ context.Context, req *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	cfg := proto.CloneOf(req.GetConfig())
	m := cfg.GetMetadata()
	if err := r.recordCall("CreateContainer", r.callSubject(req.GetPodSandboxId())+"/"+m.GetName()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	id := fmt.Sprintf("container-%s-%s-%d", s.status.Id, m.GetName(), m.GetAttempt())
	if r.containers[id] != nil {
		return &api.CreateContainerResponse{ContainerId: id}, nil
	}
	if s.status.State != api.PodSandboxState_SANDBOX_READY {
		return nil, fmt.Errorf("create container %s: its sandbox is not ready: %w", m.GetName(), errdefs.ErrFailedPrecondition)
	}
	image, err := r.findImage(cfg.GetImage().GetImage())
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", m.GetName(), err)
	}
	r.containers[id] = &container{sandbox: s.status.Id, config: cfg, status: &api.ContainerStatus{
		Id: id, Metadata: m, State: api.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
		Image: cfg.GetImage(), ImageRef: image, ImageId: image,
		Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(), Mounts: cfg.GetMounts(),
		LogPath:   filepath.Join(s.config.GetLogDirectory(), cfg.GetLogPath()),
		Resources: &api.ContainerResources{Linux: proto.CloneOf(cfg.GetLinux().GetResources())},
	}}
	r.sendEvent(s.status.Id, id, api.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &api.CreateContainerResponse{ContainerId: id}, nil
}

// StartContainer sets a container to running. It runs until End or StopContainer is called.
func (r *Runtime) StartContainer(_ context.Context, req *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	id := req.GetContainerId()
	if err := r.recordCall("StartContainer", r.callSubject(id)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	c, err := r.findContainer(id)
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	began := false
	switch c.status.State {
	case api.ContainerState_CONTAINER_CREATED:
		began = true
		c.status.State, c.status.StartedAt = api.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
		r.sendEvent(c.sandbox, id, api.ContainerEventType_CONTAINER_STARTED_EVENT)
	case api.ContainerState_CONTAINER_EXITED:
		err = fmt.Errorf("start container %s: it has already run: %w", id, errdefs.ErrFailedPrecondition)
	}
	r.mu.Unlock()
	if began && r.Started != nil {
		r.Started(id, proto.CloneOf(c.config))
	}
	return &api.StartContainerResponse{}, err
}

// StopContainer ends a container. The exit code is 143 if there is a grace period, and 137
// otherwise.
func (r *Runtime) StopContainer(_ context.Context, req *api.StopContainerRequest) (*api.StopContainerResponse, error) {
	if err := r.recordCall("StopContainer", r.callSubject(req.GetContainerId())); err != nil {
		return nil, err
	}
	code := int32(137)
	if req.GetTimeout() > 0 {
		code = 143
	}
	r.End(req.GetContainerId(), code)
	return &api.StopContainerResponse{}, nil
}

// RemoveContainer ends and removes a container.
func (r *Runtime) RemoveContainer(_ context.Context, req *api.RemoveContainerRequest) (*api.RemoveContainerResponse, error) {
	id := req.GetContainerId()
	if err := r.recordCall("RemoveContainer", r.callSubject(id)); err != nil {
		return nil, err
	}
	r.End(id, 137)
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		delete(r.containers, id)
		r.sendEvent(c.sandbox, id, api.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return &api.RemoveContainerResponse{}, nil
}

// ContainerStatus returns the status of one container.
func (r *Runtime) ContainerStatus(_ context.Context, req *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &api.ContainerStatusResponse{Status: proto.CloneOf(c.status)}, nil
}

// ListContainers lists the containers that match a filter.
func (r *Runtime) ListContainers(_ context.Context, req *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	f := req.GetFilter()
	out := &api.ListContainersResponse{}
	r.mu.Lock()
	defer r.mu.Unlock()
	own, pod := resolveID(r.containers, f.GetId()), resolveID(r.sandboxes, f.GetPodSandboxId())
	for id, c := range r.containers {
		if own != "" && id != own || pod != "" && c.sandbox != pod ||
			f.GetState() != nil && f.GetState().GetState() != c.status.State || !matchLabels(c.status.Labels, f.GetLabelSelector()) {
			continue
		}
		st := proto.CloneOf(c.status)
		out.Containers = append(out.Containers, &api.Container{
			Id: id, PodSandboxId: c.sandbox, Metadata: st.Metadata, Image: st.Image, ImageRef: st.ImageRef, ImageId: st.ImageId,
			State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
		})
	}
	return out, nil
}

// UpdateContainerResources stores the new limits.
func (r *Runtime) UpdateContainerResources(
	_ context.Context, req *api.UpdateContainerResourcesRequest,
) (*api.UpdateContainerResourcesResponse, error) {
	if err := r.recordCall("UpdateContainerResources", r.callSubject(req.GetContainerId())); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	c.status.Resources = &api.ContainerResources{Linux: proto.CloneOf(req.GetLinux())}
	return &api.UpdateContainerResourcesResponse{}, nil
}

// ReopenContainerLog does nothing, because there are no logs.
func (r *Runtime) ReopenContainerLog(_ context.Context, req *api.ReopenContainerLogRequest) (*api.ReopenContainerLogResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.findContainer(req.GetContainerId())
	return &api.ReopenContainerLogResponse{}, err
}

// ExecSync succeeds without output if the container is running.
func (r *Runtime) ExecSync(_ context.Context, req *api.ExecSyncRequest) (*api.ExecSyncResponse, error) {
	if err := r.recordCall("ExecSync", r.callSubject(req.GetContainerId())); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.findContainer(req.GetContainerId())
	if err == nil && c.status.State != api.ContainerState_CONTAINER_RUNNING {
		err = fmt.Errorf("exec in container %s: it is not running: %w", req.GetContainerId(), errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, err
	}
	return &api.ExecSyncResponse{}, nil
}
