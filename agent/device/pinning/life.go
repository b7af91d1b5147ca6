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
	"k8s.io/utils/cpuset"

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

// wantedCPUs returns the CPUs on which a container should run: its exclusive CPUs if it has any, otherwise the shared
// CPUs. The caller holds mu.
func (m *Manager) wantedCPUs(of containerKey, shared cpuset.CPUSet) cpuset.CPUSet {
	if own, has := m.cpuSets[of.uid][of.name]; has {
		return own
	}
	return shared
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

// Ended releases the resources of a pod that has ended.
func (m *Manager) Ended(ctx context.Context, pod *v1.Pod) error { return m.Release(ctx, pod.UID) }

// Release releases the resources of a pod that was deleted.
func (m *Manager) Release(ctx context.Context, uid types.UID) error {
	if m == nil {
		return nil
	}
	select {
	case m.busy <- struct{}{}:
		defer func() { <-m.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	m.mu.Lock()
	nodes := m.nodes.Clone()
	has := nodes.Remove(uid) || len(m.cpuSets[uid]) > 0
	m.mu.Unlock()
	if !has {
		return nil
	}
	if err := m.c.Store.TakeDevices(ctx, uid); err != nil {
		return err
	}
	m.mu.Lock()
	m.nodes = nodes
	delete(m.cpuSets, uid)
	m.mu.Unlock()
	m.notifyChanged()
	if m.c.OnRelease != nil {
		m.c.OnRelease()
	}
	return nil
}

// notifyChanged updates the metrics and wakes Run, which then reconciles the running containers.
func (m *Manager) notifyChanged() {
	m.updateGauges()
	select {
	case m.changeSignal <- struct{}{}:
	default:
	}
}

// The shared CPUs may change between a container's configuration and its start. If they have changed for a container,
// Run checks at the interval startingRetry whether the container runs and can be updated, but at most for startTimeout.
const (
	startingRetry = 250 * time.Millisecond
	startTimeout  = 2 * time.Minute
)

// Connect sets the runtime. It must be called before Run.
func (m *Manager) Connect(r Runtime) {
	if m != nil {
		m.runtime = r
	}
}

// Run applies changed CPUs to running containers until ctx ends. It does so after each change and every
// cpuManagerReconcilePeriod. Without a CPU policy it does nothing.
func (m *Manager) Run(ctx context.Context) error {
	if m == nil || m.cpus == nil {
		return nil
	}
	r := m.runtime
	period := m.c.Config.Kubelet.CPUManagerReconcilePeriod.Duration
	var failed string
	for {
		wait := period
		starting, err := m.reconcile(ctx, r)
		if err != nil && ctx.Err() == nil && err.Error() != failed {
			m.c.Log.Error("cannot apply the CPUs of running containers", "error", err)
		}
		failed = ""
		if err != nil {
			failed = err.Error()
		}
		if starting {
			wait = startingRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-m.changeSignal:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// reconcile updates the CPUs of all running containers. It returns true if a container that does not run yet was
// configured with outdated CPUs.
func (m *Manager) reconcile(ctx context.Context, r Runtime) (starting bool, err error) {
	list, err := r.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{
		State: &api.ContainerStateValue{State: api.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return false, err
	}
	type move struct {
		id  string
		set cpuset.CPUSet
	}
	var moves []move
	m.mu.Lock()
	shared, running := m.cpus.SharedCPUs(m.cpuSets), map[string]bool{}
	for _, c := range list.Containers {
		key := containerKey{types.UID(c.Labels[keys.PodUID]), c.Labels[keys.ContainerName]}
		if key.uid == "" {
			continue
		}
		running[c.Id] = true
		want := m.wantedCPUs(key, shared)
		has, known := m.applied[c.Id]
		// the last configuration was for this container
		if last, ok := m.configured[key]; !known && ok && c.CreatedAt >= last.createdAt.UnixNano() {
			has, known = last.set, true
			m.applied[c.Id] = has
			delete(m.configured, key)
		}
		if want.IsEmpty() || known && has.Equals(want) {
			continue
		}
		moves = append(moves, move{c.Id, want})
	}
	for id := range m.applied {
		if !running[id] {
			delete(m.applied, id)
		}
	}
	for key, last := range m.configured {
		switch {
		case time.Since(last.createdAt) > startTimeout:
			delete(m.configured, key)
		case !last.set.Equals(m.wantedCPUs(key, shared)):
			starting = true
		}
	}
	m.mu.Unlock()
	for _, mv := range moves {
		req := &api.UpdateContainerResourcesRequest{ContainerId: mv.id,
			Linux: &api.LinuxContainerResources{CpusetCpus: mv.set.String()}}
		if _, e := r.UpdateContainerResources(ctx, req); e != nil {
			// If the container is still running, the next call retries.
			err = fmt.Errorf("move container %s to CPUs %s: %w", mv.id, mv.set, e)
			continue
		}
		m.mu.Lock()
		m.applied[mv.id] = mv.set
		m.mu.Unlock()
	}
	return starting, err
}

// A Holding contains the exclusive CPUs and the memory that are assigned to a container.
type Holding struct {
	CPUs   []int
	Memory []Block
}

// A Block is memory of one kind on a set of NUMA nodes.
type Block struct {
	Kind  string
	Nodes []int
	Size  uint64 // bytes
}

// Holding returns the exclusive CPUs and the memory that are assigned to a container.
func (m *Manager) Holding(uid types.UID, container string) (h Holding) {
	if m == nil {
		return h
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.CPUs = m.cpuSets[uid][container].List()
	blocks, _ := m.nodes.Blocks(uid, container)
	for _, b := range blocks {
		h.Memory = append(h.Memory, Block{string(b.Kind), b.Nodes.IDs(), b.Size})
	}
	return h
}

// Allocatable returns all CPUs and memory that can be assigned, whether or not they are assigned now.
func (m *Manager) Allocatable() (h Holding) {
	if m == nil {
		return h
	}
	if m.cpus != nil {
		h.CPUs = m.cpus.Allocatable().List()
	}
	if m.memory != nil {
		for _, b := range m.memory.Allocatable() {
			h.Memory = append(h.Memory, Block{string(b.Kind), b.Nodes.IDs(), b.Size})
		}
	}
	return h
}
