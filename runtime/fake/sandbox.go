package fake

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RunPodSandbox adds a ready sandbox. Its ID consists of the UID and the attempt.
func (r *Runtime) RunPodSandbox(_ context.Context, req *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	cfg := proto.CloneOf(req.GetConfig())
	m := cfg.GetMetadata()
	if err := r.recordCall("RunPodSandbox", m.GetName()); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprintf("sandbox-%s-%d", m.GetUid(), m.GetAttempt())
	if s := r.sandboxes[id]; s == nil || s.status.State != api.PodSandboxState_SANDBOX_READY {
		r.serial++
		r.sandboxes[id] = &sandbox{config: cfg, status: &api.PodSandboxStatus{
			Id: id, Metadata: m, State: api.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(),
			Network: &api.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.0.%d.%d", r.serial/256%256, r.serial%256)},
			Labels:  cfg.GetLabels(), Annotations: cfg.GetAnnotations(),
		}}
		r.sendEvent(id, id, api.ContainerEventType_CONTAINER_CREATED_EVENT)
		r.sendEvent(id, id, api.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	return &api.RunPodSandboxResponse{PodSandboxId: id}, nil
}

// StopPodSandbox ends the containers of a sandbox and sets the sandbox to not ready.
func (r *Runtime) StopPodSandbox(_ context.Context, req *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	if err := r.recordCall("StopPodSandbox", r.callSubject(req.GetPodSandboxId())); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[req.GetPodSandboxId()]; s != nil {
		r.stopSandbox(s)
	}
	return &api.StopPodSandboxResponse{}, nil
}

// stopSandbox stops a sandbox. The caller holds the lock.
func (r *Runtime) stopSandbox(s *sandbox) {
	for _, c := range r.containers {
		if c.sandbox == s.status.Id && c.status.State == api.ContainerState_CONTAINER_RUNNING {
			r.endContainer(c, 137, "Error")
		}
	}
	if s.status.State == api.PodSandboxState_SANDBOX_READY {
		s.status.State, s.status.Network = api.PodSandboxState_SANDBOX_NOTREADY, nil
		r.sendEvent(s.status.Id, s.status.Id, api.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// RemovePodSandbox stops a sandbox and removes it with its containers.
func (r *Runtime) RemovePodSandbox(_ context.Context, req *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	id := req.GetPodSandboxId()
	if err := r.recordCall("RemovePodSandbox", r.callSubject(id)); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[id]; s != nil {
		r.stopSandbox(s)
		for k, c := range r.containers {
			if c.sandbox == id {
				delete(r.containers, k)
			}
		}
		r.sendEvent(id, id, api.ContainerEventType_CONTAINER_DELETED_EVENT)
		delete(r.sandboxes, id)
	}
	return &api.RemovePodSandboxResponse{}, nil
}

// PodSandboxStatus returns the status of one sandbox.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &api.PodSandboxStatusResponse{Status: proto.CloneOf(s.status)}, nil
}

// ListPodSandbox lists the sandboxes that match a filter.
func (r *Runtime) ListPodSandbox(_ context.Context, req *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	f := req.GetFilter()
	out := &api.ListPodSandboxResponse{}
	r.mu.Lock()
	defer r.mu.Unlock()
	want := resolveID(r.sandboxes, f.GetId())
	for id, s := range r.sandboxes {
		if want != "" && id != want || f.GetState() != nil && f.GetState().GetState() != s.status.State ||
			!matchLabels(s.status.Labels, f.GetLabelSelector()) {
			continue
		}
		st := proto.CloneOf(s.status)
		out.Items = append(out.Items, &api.PodSandbox{
			Id: id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
		})
	}
	return out, nil
}
