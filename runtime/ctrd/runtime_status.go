package ctrd

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/version"
	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NetworkPluginNotReady is the reason in the NetworkReady condition if its status is False.
const NetworkPluginNotReady = "NetworkPluginNotReady"

// Version returns the name and version of this runtime.
func (r *Runtime) Version(context.Context, *api.VersionRequest) (*api.VersionResponse, error) {
	v, _, _ := strings.Cut(version.Version, "+")
	return &api.VersionResponse{Version: "0.1.0", RuntimeName: version.Name, RuntimeVersion: v, RuntimeApiVersion: "v1"}, nil
}

// Status returns the conditions RuntimeReady and NetworkReady. Its verbose information has the keys
// ociRuntime, ociVersion, cgroupVersion, snapshotter and shimPods.
func (r *Runtime) Status(_ context.Context, req *api.StatusRequest) (*api.StatusResponse, error) {
	network := &api.RuntimeCondition{Type: "NetworkReady", Status: true}
	if err := r.c.Network.Ready(); err != nil {
		network.Status, network.Reason, network.Message = false, NetworkPluginNotReady, "Network plugin returns error: "+err.Error()
	}
	out := &api.StatusResponse{
		Status:   &api.RuntimeStatus{Conditions: []*api.RuntimeCondition{{Type: "RuntimeReady", Status: true}, network}},
		Features: Features(),

		RuntimeHandlers: r.listHandlers(),
	}
	if req.GetVerbose() {
		cgroup := "1"
		if r.host.CgroupV2 {
			cgroup = "2"
		}
		out.Info = map[string]string{
			"ociRuntime": filepath.Base(r.oci.Path), "ociVersion": r.ociVersion(), "cgroupVersion": cgroup,
			"snapshotter": r.c.Daemon.Snapshotter(), "shimPods": strconv.Itoa(max(r.c.ShimPods, 1)),
		}
	}
	return out, nil
}

// Features returns the features of this runtime.
func Features() *api.RuntimeFeatures {
	return &api.RuntimeFeatures{SupplementalGroupsPolicy: true, MountOptions: true}
}

// RuntimeConfig returns the cgroup driver, which kubeadm's preflight checks need.
func (r *Runtime) RuntimeConfig(context.Context, *api.RuntimeConfigRequest) (*api.RuntimeConfigResponse, error) {
	driver := api.CgroupDriver_CGROUPFS
	if r.c.SystemdCgroup {
		driver = api.CgroupDriver_SYSTEMD
	}
	return &api.RuntimeConfigResponse{Linux: &api.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig validates the pod address ranges and ignores them, because the network reads
// them from the Node or the configuration. A containerd without a CNI template does the same.
func (r *Runtime) UpdateRuntimeConfig(_ context.Context, req *api.UpdateRuntimeConfigRequest) (*api.UpdateRuntimeConfigResponse, error) {
	if ranges := req.GetRuntimeConfig().GetNetworkConfig().GetPodCidr(); ranges != "" {
		for cidr := range strings.SplitSeq(ranges, ",") {
			if _, err := netip.ParsePrefix(strings.TrimSpace(cidr)); err != nil {
				return nil, fmt.Errorf("pod CIDR %q: %w: %w", cidr, err, errdefs.ErrInvalidArgument)
			}
		}
	}
	return &api.UpdateRuntimeConfigResponse{}, nil
}
