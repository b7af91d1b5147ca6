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

// distant is a runtime behind a socket. It has images, network and OCI runtimes of its
// own; none of the native one's are opened.
type distant struct{ *remote.Runtime }

// openRemote connects with the runtime at endpoint, and asks it once how it is.
func openRemote(ctx context.Context, a Config, endpoint string, cgroups *cgroup.Recent) (*Containers, error) {
	asked := operations.New()
	pulls := int64(parallelPulls(a.Config))
	if *a.Kubelet.SerializeImagePulls {
		pulls = 1
	}
	c := remote.Config{
		Endpoint: endpoint, Timeout: a.Kubelet.RuntimeRequestTimeout.Duration, Pulls: pulls, PullsPerSecond: int(*a.Kubelet.RegistryPullQPS), PullBurst: int(a.Kubelet.RegistryBurst), Changed: a.NetworkChanged, Counted: asked.Counted, Log: a.Log,
	}
	if endpoint == a.RuntimeEndpoint { // else it is one that is left
		c.ImageEndpoint = a.ImageEndpoint
	}
	rt, err := remote.Open(c)
	if err != nil {
		return nil, err
	}
	rt.Ask(ctx)
	return &Containers{
		Runtime: rt, Streams: remote.Streaming{Runtime: rt}, Images: operations.Pulls{Images: rt.Images(), Operations: asked}, Network: &itsNetwork{rt: rt},
		Operations: asked, Cgroups: cgroups, CgroupDriver: a.Kubelet.CgroupDriver, Endpoint: endpoint, backend: &distant{rt},
	}, nil
}

func (d *distant) Await(ctx context.Context) error {
	_, err := d.Runtime.Await(ctx)
	return err
}

func (d *distant) Reconcile(context.Context) error { return nil }

func (d *distant) Imports() Imports { return nil }

func (d *distant) Going() []agentapi.Import { return nil }

func (d *distant) FailedArchives() []agentapi.Import { return nil }

// itsNetwork is the network of a runtime behind a socket: the runtime runs its own CNI
// plugins, and says of the network only whether it is ready.
type itsNetwork struct {
	rt *remote.Runtime

	mu    sync.Mutex
	cidrs []netip.Prefix // that the runtime was told
}

// Run does nothing: the runtime looks after its network.
func (n *itsNetwork) Run(context.Context) error { return nil }

// Stale is nothing: a runtime says not which network a sandbox is on.
func (n *itsNetwork) Stale(string) bool { return false }

// SetPodCIDRs tells the runtime the Node's podCIDRs, from which some runtimes make a CNI
// configuration.
func (n *itsNetwork) SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error {
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

// PodCIDRs are not known: the CNI configuration has them.
func (n *itsNetwork) PodCIDRs() []netip.Prefix { return nil }

// Config names whose network it is.
func (n *itsNetwork) Config() string { return "of the container runtime" }

// Problem is none that NetworkReady does not tell.
func (n *itsNetwork) Problem() error { return nil }

// Repairs are none: the network is the runtime's.
func (n *itsNetwork) Repairs() cni.Repairs { return cni.Repairs{} }

// Clean does nothing: the network of a sandbox goes with it.
func (n *itsNetwork) Clean(context.Context) error { return nil }
