package engine

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/engine/operations"
	agentapi "github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/net/cni"
	"github.com/islet-edge/islet/runtime/remote"
)

// remoteBackend is a remote runtime, which has its own images, network and OCI runtimes. The state of the runtime in
// this process is not opened.
type remoteBackend struct{ *remote.Runtime }

// openRemote connects to the runtime at endpoint, and requests its status once.
func openRemote(ctx context.Context, a Config, endpoint string, cgroups *cgroup.CachedReader) (*Containers, error) {
	ops := operations.New()
	pulls := int64(parallelPulls(a.Config))
	if *a.Kubelet.SerializeImagePulls {
		pulls = 1
	}
	c := remote.Config{
		Endpoint: endpoint, Timeout: a.Kubelet.RuntimeRequestTimeout.Duration,
		Pulls: pulls, PullsPerSecond: int(*a.Kubelet.RegistryPullQPS), PullBurst: int(a.Kubelet.RegistryBurst),
		Changed: a.NetworkChanged, ObserveCall: ops.ObserveCall, Log: a.Log,
	}
	if endpoint == a.RuntimeEndpoint { // otherwise this is the previous runtime
		c.ImageEndpoint = a.ImageEndpoint
	}
	rt, err := remote.Open(c)
	if err != nil {
		return nil, err
	}
	rt.CheckStatus(ctx)
	return &Containers{
		Runtime: rt, Streams: remote.Streaming{Runtime: rt}, Images: operations.Pulls{Images: rt.Images(), Operations: ops},
		Network: &remoteNetwork{rt: rt}, Operations: ops, Cgroups: cgroups,
		CgroupDriver: a.Kubelet.CgroupDriver, Endpoint: endpoint, backend: &remoteBackend{rt},
	}, nil
}

func (d *remoteBackend) Await(ctx context.Context) error {
	_, err := d.Runtime.Await(ctx)
	return err
}

func (d *remoteBackend) Features() *api.RuntimeFeatures { return remote.Features(d.Runtime) }

func (d *remoteBackend) Reconcile(context.Context) error { return nil }

func (d *remoteBackend) UpdateDNS(func(*api.PodSandboxMetadata) *api.DNSConfig) error { return nil }

func (d *remoteBackend) Imports() Imports { return nil }

func (d *remoteBackend) ImportsInProgress() []agentapi.Import { return nil }

func (d *remoteBackend) FailedArchives() []agentapi.Import { return nil }

// remoteNetwork is the network of a remote runtime. The runtime runs the CNI plugins, and only reports
// whether the network is ready.
type remoteNetwork struct {
	rt *remote.Runtime

	mu    sync.Mutex
	cidrs []netip.Prefix // the last podCIDRs that the runtime accepted
}

// Run does nothing, because the runtime maintains its network.
func (n *remoteNetwork) Run(context.Context) error { return nil }

// IsStale returns false, because a remote runtime does not report the network of a sandbox.
func (n *remoteNetwork) IsStale(string) bool { return false }

// SetPodCIDRs sends the Node's podCIDRs to the runtime. Some runtimes generate their CNI
// configuration from them.
func (n *remoteNetwork) SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Equal(n.cidrs, cidrs) {
		return nil
	}
	var list []string
	for _, c := range cidrs {
		list = append(list, c.String())
	}
	_, err := n.rt.UpdateRuntimeConfig(ctx, &api.UpdateRuntimeConfigRequest{RuntimeConfig: &api.RuntimeConfig{
		NetworkConfig: &api.NetworkConfig{PodCidr: strings.Join(list, ",")}}})
	if err == nil {
		n.cidrs = slices.Clone(cidrs)
	}
	return err
}

// PodCIDRs returns nil, because only the runtime's CNI configuration contains them.
func (n *remoteNetwork) PodCIDRs() []netip.Prefix { return nil }

// Config returns a description instead of the name of a configuration.
func (n *remoteNetwork) Config() string { return "of the container runtime" }

// Problem returns nil, because the runtime reports problems as NetworkReady.
func (n *remoteNetwork) Problem() error { return nil }

// Repairs returns no repairs, because the runtime maintains its network.
func (n *remoteNetwork) Repairs() cni.Repairs { return cni.Repairs{} }

// Clean does nothing, because the runtime removes the network with the sandbox.
func (n *remoteNetwork) Clean(context.Context) error { return nil }
