package podresources

import (
	"context"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/device/pinning"
	"github.com/islet-edge/islet/agent/plugin/rpc"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/socket"
)

// Config is the input of Open.
type Config struct {
	Root    string // --root-dir
	Sockets *socket.Sockets
	Pods    func() []*v1.Pod       // the pods with their statuses
	Devices Devices                // the devices that are allocated to containers
	Claims  func() []*ClaimDevices // may be nil
	Pinning *pinning.Manager       // exclusive CPUs and memory of containers; may be nil
	Counter Counter
}

// Counter counts requests. *counts.PodResources implements it.
type Counter interface {
	// CountRequest counts a request. The parameter method is the name of the request: "list", "get" or
	// "get_allocatable".
	CountRequest(method string, err error)
}

// Devices lists the devices of this node. *devicemanager.Manager implements it.
type Devices interface {
	List() []devicemanager.Resource
	Holdings() []devicemanager.Holding
}

// ClaimDevices contains the devices that a container has through one ResourceClaim.
type ClaimDevices struct {
	UID       types.UID // UID of the pod
	Container string
	Resource  *api.DynamicResource
}

// A Server serves the pod resources API.
type Server struct {
	c Config
	s *rpc.Server
	api.UnimplementedPodResourcesListerServer
}

// Open opens the socket.
func Open(c Config) (*Server, error) {
	s, err := rpc.Listen(filepath.Join(c.Root, "pod-resources", "kubelet.sock"), c.Sockets)
	if err != nil {
		return nil, err
	}
	return &Server{c: c, s: s}, nil
}

// Close closes the socket if Run is not called.
func (s *Server) Close() error { return s.s.Close() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	return s.s.Run(ctx, rpc.Reject, func(g *grpc.Server) { api.RegisterPodResourcesListerServer(g, s) })
}

// List reports the resources of all pods that have not ended.
func (s *Server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	s.c.Counter.CountRequest("list", nil)
	out := &api.ListPodResourcesResponse{}
	snap := s.takeSnapshot()
	for _, pod := range s.c.Pods() {
		if isActive(pod) {
			out.PodResources = append(out.PodResources, snap.podResources(pod))
		}
	}
	return out, nil
}

// Get reports the resources of one pod.
func (s *Server) Get(_ context.Context, q *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	for _, pod := range s.c.Pods() {
		if pod.Name == q.PodName && pod.Namespace == q.PodNamespace {
			s.c.Counter.CountRequest("get", nil)
			return &api.GetPodResourcesResponse{PodResources: s.takeSnapshot().podResources(pod)}, nil
		}
	}
	err := status.Errorf(codes.Unknown, "pod %s in namespace %s not found", q.PodName, q.PodNamespace) // a kubelet's code
	s.c.Counter.CountRequest("get", err)
	return nil, err
}

// GetAllocatableResources reports the allocatable resources, whether or not they are allocated now.
func (s *Server) GetAllocatableResources(context.Context,
	*api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	s.c.Counter.CountRequest("get_allocatable", nil)
	out := &api.AllocatableResourcesResponse{}
	for _, r := range s.c.Devices.List() {
		for _, d := range r.Devices {
			if d.Healthy {
				out.Devices = append(out.Devices, deviceEntries(r.Name, d.ID, d.NUMA)...)
			}
		}
	}
	all := s.c.Pinning.Allocatable()
	out.CpuIds, out.Memory = convertCPUs(all.CPUs), convertBlocks(all.Memory)
	return out, nil
}

func convertCPUs(cpus []int) (out []int64) {
	for _, id := range cpus {
		out = append(out, int64(id))
	}
	return out
}

func convertBlocks(list []pinning.Block) (out []*api.ContainerMemory) {
	for _, b := range list {
		t := &api.TopologyInfo{}
		for _, id := range b.Nodes {
			t.Nodes = append(t.Nodes, &api.NUMANode{ID: int64(id)})
		}
		out = append(out, &api.ContainerMemory{MemoryType: b.Kind, Size: b.Size, Topology: t})
	}
	return out
}

func isActive(pod *v1.Pod) bool {
	return pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed
}

type holder struct {
	uid       types.UID
	container string
}

// A snapshot contains the resources of all containers at one time.
type snapshot struct {
	devices map[holder][]*api.ContainerDevices
	claims  map[holder][]*api.DynamicResource
	pinning *pinning.Manager
}

func (s *Server) takeSnapshot() snapshot {
	a := snapshot{map[holder][]*api.ContainerDevices{}, map[holder][]*api.DynamicResource{}, s.c.Pinning}
	for _, h := range s.c.Devices.Holdings() {
		key := holder{h.UID, h.Container}
		for _, id := range h.IDs {
			a.devices[key] = append(a.devices[key], deviceEntries(h.Resource, id, h.NUMA[id])...)
		}
	}
	if s.c.Claims != nil {
		for _, c := range s.c.Claims() {
			key := holder{c.UID, c.Container}
			a.claims[key] = append(a.claims[key], c.Resource)
		}
	}
	return a
}

// deviceEntries returns the entries for one device. Like a kubelet, it returns an entry for each NUMA node of the device.
func deviceEntries(resource, id string, numa []int64) (out []*api.ContainerDevices) {
	if len(numa) == 0 {
		return []*api.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}}
	}
	for _, n := range numa {
		out = append(out, &api.ContainerDevices{ResourceName: resource, DeviceIds: []string{id},
			Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: n}}}})
	}
	return out
}

func (a snapshot) podResources(pod *v1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind == podspec.Sidecar || kind == podspec.Main {
			key := holder{pod.UID, c.Name}
			own := a.pinning.Holding(pod.UID, c.Name)
			out.Containers = append(out.Containers,
				&api.ContainerResources{Name: c.Name, Devices: a.devices[key], DynamicResources: a.claims[key],
					CpuIds: convertCPUs(own.CPUs), Memory: convertBlocks(own.Memory)})
		}
	}
	return out
}
