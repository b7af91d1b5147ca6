package ctrd

import (
	"context"
	"encoding/json"

	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandboxStatus tells all about one sandbox.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	s, err := r.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	out := &api.PodSandboxStatusResponse{Status: r.sandboxStatus(s)}
	if req.GetVerbose() {
		r.mu.Lock()
		resources, overhead := s.resources()
		b, err := json.Marshal(map[string]any{"shim": s.rec.Shim, "netns": r.netns(s), "pid": s.pid, "resources": resources, "overhead": overhead})
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		out.Info = map[string]string{"info": string(b)}
	}
	return out, nil
}

func (r *Runtime) sandboxStatus(s *sandbox) *api.PodSandboxStatus {
	cfg := proto.CloneOf(s.config)
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.PodSandboxStatus{
		Id: s.rec.ID, Metadata: cfg.GetMetadata(), State: s.state(), CreatedAt: nanos(s.rec.CreatedAt),
		Network: &api.PodSandboxNetworkStatus{}, Labels: cfg.GetLabels(), Annotations: cfg.GetAnnotations(), RuntimeHandler: s.rec.Handler,
		Linux: &api.LinuxPodSandboxStatus{Namespaces: &api.Namespace{Options: cfg.GetLinux().GetSecurityContext().GetNamespaceOptions()}},
	}
	if !s.ready {
		return out
	}
	for i, ip := range s.rec.IPs {
		if i == 0 {
			out.Network.Ip = ip
		} else {
			out.Network.AdditionalIps = append(out.Network.AdditionalIps, &api.PodIP{Ip: ip})
		}
	}
	return out
}
