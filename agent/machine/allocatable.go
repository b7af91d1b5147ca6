package machine

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/config"
	"github.com/islet-edge/islet/metrics/host"
)

// allocatable is what pods may ask for together: all that the machine has, and
// as many pods as the configuration allows.
// https://kubernetes.io/docs/tasks/administer-cluster/reserve-compute-resources/
func allocatable(ctx context.Context, cfg *config.Config) (v1.ResourceList, error) {
	machine := host.New(host.Config{})
	id, err := machine.Identity(ctx)
	if err != nil {
		return nil, err
	}
	disk, err := machine.Disk(ctx, cfg.Dirs.State)
	if err != nil {
		return nil, err
	}
	pods := int64(cfg.Kubelet.MaxPods)
	if perCore := int64(cfg.Kubelet.PodsPerCore); perCore > 0 {
		pods = min(pods, perCore*int64(id.CPUs))
	}
	room := v1.ResourceList{
		v1.ResourceCPU:              *resource.NewQuantity(int64(id.CPUs), resource.DecimalSI),
		v1.ResourceMemory:           *resource.NewQuantity(int64(id.Memory), resource.BinarySI),
		v1.ResourceEphemeralStorage: *resource.NewQuantity(int64(disk.Total), resource.BinarySI),
		v1.ResourcePods:             *resource.NewQuantity(pods, resource.DecimalSI),
	}
	pages, err := machine.HugePages()
	if err != nil {
		return nil, err
	}
	for size, bytes := range pages {
		page := resource.NewQuantity(int64(size), resource.BinarySI)
		room[v1.ResourceName(fmt.Sprint(v1.ResourceHugePagesPrefix, page))] = *resource.NewQuantity(int64(bytes), resource.BinarySI)
	}
	return room, nil
}
