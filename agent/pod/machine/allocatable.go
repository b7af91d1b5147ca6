package machine

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/spec/admit"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/reserve"
	"github.com/islet-edge/islet/metrics/host"
)

// hardware contains the resources of the machine.
type hardware struct {
	reserve.Machine
	swap int64 // bytes
}

// inspectMachine returns the machine's resources, and the number of pods that the configuration allows. The amount of
// ephemeral storage is the size of the file system that contains the pods' directories.
// https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
func inspectMachine(ctx context.Context, cfg *config.Config) (f hardware, err error) {
	machine := host.New(host.Config{})
	id, err := machine.Identity(ctx)
	if err != nil {
		return f, err
	}
	pods := int64(cfg.Kubelet.MaxPods)
	if perCore := int64(cfg.Kubelet.PodsPerCore); perCore > 0 {
		pods = min(pods, perCore*int64(id.CPUs))
	}
	f.swap = int64(id.Swap)
	f.Capacity = v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(id.CPUs), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(id.Memory), resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(pods, resource.DecimalSI),
	}
	if *cfg.Kubelet.LocalStorageCapacityIsolation {
		disk, err := machine.Disk(ctx, nearestExisting(cfg.Dirs.Root))
		if err != nil {
			return f, err
		}
		f.Capacity[v1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(disk.Total), resource.DecimalSI)
	}
	pages, err := machine.HugePages()
	if err != nil {
		return f, err
	}
	for size, bytes := range pages {
		page := resource.NewQuantity(int64(size), resource.BinarySI)
		f.Capacity[v1.ResourceName(fmt.Sprint(v1.ResourceHugePagesPrefix, page))] = *resource.NewQuantity(int64(bytes), resource.BinarySI)
	}
	if p, err := machine.Processes(); err == nil {
		f.PIDs = int64(p.Max)
	}
	if cfg.Kubelet.ReservedSystemCPUs != "" {
		f.CPUs, err = machine.OnlineCPUs()
	}
	return f, err
}

// nearestExisting returns the given directory if it exists, otherwise its nearest parent
// directory that exists.
func nearestExisting(dir string) string {
	for dir != "/" {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	return dir
}

// nodeResources returns the capacity and allocatable resources of the Node, including devices.
func (n *Machine) nodeResources() (capacity, allocatable v1.ResourceList) {
	own := n.Now().Allocatable
	if n.devices == nil {
		return n.share.Capacity, own
	}
	capacity, allocatable = n.devices.Resources()
	maps.Copy(capacity, n.share.Capacity)
	maps.Copy(allocatable, own)
	return capacity, allocatable
}

// AllocatableMemory returns the memory that is allocatable to pods, in bytes.
func (n *Machine) AllocatableMemory() int64 {
	all := n.Now().Allocatable
	return all.Memory().Value()
}

// Extended returns the allocatable extended resources of the Node. They are the devices of this node, and the resources that other
// components have added to the Node.
func (n *Machine) Extended() map[string]int64 {
	_, own := n.nodeResources()
	n.mu.Lock()
	all := maps.Clone(n.advertised) // may have former amounts of the node's own devices
	n.mu.Unlock()
	if all == nil {
		all = v1.ResourceList{}
	}
	maps.Copy(all, own)
	out := map[string]int64{}
	for name, q := range all {
		if admit.IsExtended(name) {
			out[string(name)] = q.Value()
		}
	}
	return out
}

// Share returns the part of the machine's resources that is available to pods.
func (n *Machine) Share() reserve.Share { return n.share }
