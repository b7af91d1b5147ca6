package pinning

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/islet-edge/islet/internal/keys"
)

// The shared CPUs may change between a container's configuration and its start. If they have changed for a container,
// Run checks at the interval startingRetry whether the container runs and can be updated, but at most for startTimeout.
const (
	startingRetry = 250 * time.Millisecond
	startTimeout  = 2 * time.Minute
)

// notifyChanged updates the metrics and wakes Run, which then reconciles the running containers.
func (m *Manager) notifyChanged() {
	m.updateGauges()
	select {
	case m.changeSignal <- struct{}{}:
	default:
	}
}

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
			m.c.Log.Error("cannot set the CPUs of running containers", "error", err)
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

// wantedCPUs returns the CPUs on which a container should run: its exclusive CPUs if it has any, otherwise the shared
// CPUs. The caller holds mu.
func (m *Manager) wantedCPUs(of containerKey, shared cpuset.CPUSet) cpuset.CPUSet {
	if own, has := m.cpuSets[of.uid][of.name]; has {
		return own
	}
	return shared
}
