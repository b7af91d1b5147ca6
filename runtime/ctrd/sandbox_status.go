package ctrd

import (
	"context"
	"encoding/json"

	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandboxStatus returns the status of one sandbox. The verbose information includes the key
// runtimeSpec. It is the specification that a pause container would have, from which tools read the
// paths of the pod's namespaces.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	s, err := r.findSandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	out := &api.PodSandboxStatusResponse{Status: r.sandboxStatus(s)}
	if req.GetVerbose() {
		r.mu.Lock()
		resources, overhead := s.podResources()
		info := map[string]any{
			"shim": s.rec.Shim, "netns": r.netnsPath(s), "pid": s.pid,
			"resources": resources, "overhead": overhead, "runtimeSpec": r.podSpec(s),
		}
		b, err := json.Marshal(info)
		r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		out.Info = map[string]string{"info": string(b)}
	}
	return out, nil
}

// podSpec returns the specification that a pause container of this sandbox would have. The caller
// holds Runtime.mu.
func (r *Runtime) podSpec(s *sandbox) specs.Spec {
	spec := specs.Spec{Version: specs.Version, Hostname: s.config.GetHostname(), Linux: &specs.Linux{}}
	if !s.ready {
		return spec // its namespaces do not exist any more
	}
	n := r.sandboxNamespaces(s)
	for _, ns := range []specs.LinuxNamespace{
		{Type: specs.NetworkNamespace, Path: n.Net}, {Type: specs.IPCNamespace, Path: n.IPC},
		{Type: specs.UTSNamespace, Path: n.UTS}, {Type: specs.UserNamespace, Path: n.Users},
	} {
		if ns.Path != "" {
			spec.Linux.Namespaces = append(spec.Linux.Namespaces, ns)
		}
	}
	return spec
}

func (r *Runtime) sandboxStatus(s *sandbox) *api.PodSandboxStatus {
	cfg := proto.CloneOf(s.config)
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.PodSandboxStatus{
		Id: s.rec.ID, Metadata: cfg.GetMetadata(), State: s.state(), CreatedAt: unixNanos(s.rec.CreatedAt),
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
