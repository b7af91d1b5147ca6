package pinning

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/realtime"
)

// Name returns the hook's name.
func (*Manager) Name() string { return "cpus" }

// Prepare assigns the resources that a pod does not have yet. Resources are missing if the pod has ended and runs
// again, or if it was admitted before the policy was configured.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	missing := m.needsResources(pod)
	m.mu.Unlock()
	if !missing {
		return nil
	}
	return m.allocateResources(ctx, pod)
}

// Container sets the CPUs and NUMA nodes in a container's configuration. The CPUs are the container's exclusive CPUs, or
// the shared CPUs if it has no exclusive ones.
func (m *Manager) Container(_ context.Context, pod *v1.Pod, ctr *v1.Container, out *api.ContainerConfig) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := out.GetLinux().GetResources()
	if r == nil {
		return nil
	}
	if m.cpus != nil {
		if realtime.WantsIsolatedCPUs(pod, ctr.Name) && !m.cpus.HasIsolated(m.cpuSets[pod.UID][ctr.Name]) {
			return fmt.Errorf("annotation %s%s: the container has other CPUs, because the annotation was added after its pod was admitted"+
				": delete the pod and create it again", keys.IsolatedCPUs, ctr.Name)
		}
		set := m.wantedCPUs(containerKey{pod.UID, ctr.Name}, m.cpus.SharedCPUs(m.cpuSets))
		m.configured[containerKey{pod.UID, ctr.Name}] = configuration{set, time.Now()}
		r.CpusetCpus = set.String()
	}
	blocks, _ := m.nodes.Blocks(pod.UID, ctr.Name)
	var at topology.Mask
	for _, b := range blocks {
		at |= b.Nodes
	}
	var list []string
	for _, id := range at.IDs() {
		list = append(list, strconv.Itoa(id))
	}
	r.CpusetMems = strings.Join(list, ",")
	return nil
}

// Exclusive reports whether a container has exclusive CPUs. Such a container has no CPU quota.
func (m *Manager) Exclusive(uid types.UID, container string) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, has := m.cpuSets[uid][container]
	return has
}

// Pod reports whether any container of a pod has exclusive CPUs.
func (m *Manager) Pod(pod *v1.Pod) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.cpuSets[pod.UID]) > 0
}
