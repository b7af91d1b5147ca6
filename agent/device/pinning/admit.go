package pinning

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/device/cpumanager"
	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/device/memorymanager"
	"github.com/islet-edge/islet/agent/device/topology"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/podspec"
)

// affinityError is a kubelet's error for a pod that the topology manager's policy rejects.
type affinityError struct{}

func (affinityError) Error() string  { return "Resources cannot be allocated with Topology locality" }
func (affinityError) Reason() string { return "TopologyAffinityError" }

// orderedContainers lists the containers of a pod in the order in which they start. It omits ephemeral containers.
func orderedContainers(pod *v1.Pod) (out []*v1.Container) {
	for kind, ctr := range podspec.Containers(&pod.Spec) {
		if kind != podspec.Ephemeral {
			out = append(out, ctr)
		}
	}
	return out
}

// NeedsAllocation reports whether a pod requests devices, CPUs or memory that are not assigned to it yet.
func (m *Manager) NeedsAllocation(pod *v1.Pod) bool {
	if m.c.Devices.NeedsAllocation(pod) {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.needsResources(pod)
}

// needsResources reports whether any container of a pod needs exclusive CPUs or memory that are not assigned to it
// yet. The caller holds mu.
func (m *Manager) needsResources(pod *v1.Pod) bool {
	for _, ctr := range orderedContainers(pod) {
		if _, has := m.cpuSets[pod.UID][ctr.Name]; m.cpus != nil && !has && demand.ExclusiveCPUs(pod, ctr) > 0 {
			return true
		}
		if _, has := m.nodes.Blocks(pod.UID, ctr.Name); m.memory != nil && !has && len(memorymanager.RequestedMemory(pod, ctr)) > 0 {
			return true
		}
	}
	return false
}

// Admit assigns devices, CPUs and memory to all containers of a pod, or to none. See devicemanager.Manager.Admit.
func (m *Manager) Admit(ctx context.Context, pod *v1.Pod) (reason, refusal string, err error) {
	err = m.allocateResources(ctx, pod)
	if err == nil || ctx.Err() != nil || devicemanager.IsUndecided(err) || errors.Is(err, errOvertaken) {
		return "", "", err
	}
	var own interface {
		error
		Reason() string
	}
	if errors.As(err, &own) {
		return own.Reason(), own.Error(), nil
	}
	return devicemanager.Unexpected, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err), nil
}

// allocateResources assigns resources to a pod. While it waits for device plugins, the store or reservations of other pods, it
// locks only this pod: the resources are reserved by a draft, and other pods are admitted with the rest.
func (m *Manager) allocateResources(ctx context.Context, pod *v1.Pod) error {
	unlock, err := m.lockPod(ctx, pod.UID)
	if err != nil {
		return err
	}
	defer unlock()
	begin := time.Now()
	d, err := m.awaitReservation(ctx, pod)
	if err == nil {
		err = d.complete(ctx)
	}
	m.metrics.observeAdmission(m.policy.Name() != topology.None, time.Since(begin), err)
	return err
}

// errOvertaken means that a pod waited for other pods' reservations, and that later pods have reserved the resources that it lacks. The
// admission of these pods may fail, so errOvertaken does not reject the pod.
var errOvertaken = errors.New("the resources are reserved for other pods whose admission has not ended")

// awaitReservation reserves the resources of a pod. If they are insufficient and other pods have reservations, it waits until
// these have ended, because a pod is not refused for a reservation that may be given back.
func (m *Manager) awaitReservation(ctx context.Context, pod *v1.Pod) (*draft, error) {
	var before []*draft // the reservations when the first attempt failed
	for first := true; ; first = false {
		d, others, err := m.reserve(ctx, pod)
		if err == nil || len(others.drafts) == 0 {
			return d, err
		}
		if first {
			before = others.drafts
		}
		before = slices.DeleteFunc(before, func(o *draft) bool { return !slices.Contains(others.drafts, o) })
		if len(before) == 0 {
			return nil, fmt.Errorf("%w: %w", errOvertaken, err)
		}
		select {
		case <-others.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// reserve reserves the resources of all containers of a pod, or of none. It calls no other program. The caller must call
// complete. If reserve fails, it returns the reservations of other pods that it has seen.
func (m *Manager) reserve(ctx context.Context, pod *v1.Pod) (d *draft, others reservations, err error) {
	m.planning.Lock()
	defer m.planning.Unlock()
	devices, err := m.c.Devices.BeginAllocation(pod)
	if err != nil {
		return nil, reservations{}, err
	}
	reserved := false
	defer func() {
		if !reserved {
			_ = devices.End(ctx, errAborted, nil)
		}
	}()
	d = &draft{m: m, pod: pod, devices: devices}
	m.mu.Lock()
	d.cpus, d.nodes = m.cpuSets.Clone(), m.nodes.Clone()
	others = reservations{slices.Clone(m.reserved.drafts), m.reserved.ended}
	m.mu.Unlock()
	for _, o := range others.drafts {
		o.addTo(d.cpus, d.nodes)
	}
	if err := d.assignNodes(); err != nil {
		return nil, others, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reserved.drafts = append(m.reserved.drafts, d)
	reserved = true
	return d, others, nil
}

// errAborted ends the allocation of devices when nothing is reserved, and when an admission panicked.
var errAborted = errors.New("the admission was aborted")

// complete calls the device plugins, stores the assignments of a draft and puts them into effect. If it fails or panics, it
// gives the resources back.
func (d *draft) complete(ctx context.Context) error {
	stored := false
	defer func() {
		_ = d.devices.End(ctx, errAborted, nil)
		d.m.finish(d, stored)
	}()
	err := d.devices.Allocate(ctx)
	var rows []store.Devices
	if err == nil {
		rows, err = d.buildRows()
	}
	err = d.devices.End(ctx, err, rows)
	stored = err == nil
	return err
}

// finish removes a draft, and first puts its assignments into effect if they are stored. It wakes the pods that wait for the end
// of a reservation.
func (m *Manager) finish(d *draft, stored bool) {
	m.mu.Lock()
	if stored {
		d.addTo(m.cpuSets, m.nodes)
	}
	m.reserved.drafts = slices.DeleteFunc(m.reserved.drafts, func(o *draft) bool { return o == d })
	close(m.reserved.ended)
	m.reserved.ended = make(chan struct{})
	m.mu.Unlock()
	if stored {
		m.notifyChanged()
	}
}

// reservations contains the reservations of pods whose admission has not ended.
type reservations struct {
	drafts []*draft
	ended  chan struct{} // closed when one of the drafts ends
}

// A draft contains the assignments to a pod until they are stored. In the meantime no other pod gets these resources. The
// assignments do not change after reserve.
type draft struct {
	m       *Manager
	pod     *v1.Pod
	devices *devicemanager.PodAllocation
	cpus    cpumanager.Assignments
	nodes   *memorymanager.Assignments
}

// addTo adds the assignments to the draft's pod.
func (d *draft) addTo(cpus cpumanager.Assignments, nodes *memorymanager.Assignments) {
	uid := d.pod.UID
	for _, ctr := range orderedContainers(d.pod) {
		if set, has := d.cpus[uid][ctr.Name]; has {
			cpus.Put(uid, ctr.Name, set)
		}
		if _, there := nodes.Blocks(uid, ctr.Name); there {
			continue
		}
		if blocks, has := d.nodes.Blocks(uid, ctr.Name); has {
			kind, _ := podspec.Find(&d.pod.Spec, ctr.Name)
			nodes.Put(uid, ctr.Name, kind == podspec.Init, blocks)
		}
	}
}

// assignNodes selects NUMA nodes and assigns resources from them. It selects the nodes for each container, or once for all
// containers if the scope is the pod.
func (d *draft) assignNodes() error {
	m := d.m
	if m.byPod && m.policy.Name() != topology.None {
		h, ok := m.policy.Merge(d.podHints())
		m.metrics.countAlignment(m.policy.Name(), topology.PodScope, ok)
		if !ok {
			return affinityError{}
		}
		for _, ctr := range orderedContainers(d.pod) {
			if err := d.takeFrom(ctr, h); err != nil {
				return err
			}
		}
		return nil
	}
	for _, ctr := range orderedContainers(d.pod) {
		h := topology.Hint{}
		if m.policy.Name() != topology.None {
			var ok bool
			h, ok = m.policy.Merge(d.containerHints(ctr))
			m.metrics.countAlignment(m.policy.Name(), topology.ContainerScope, ok)
			if !ok {
				return affinityError{}
			}
		}
		if err := d.takeFrom(ctr, h); err != nil {
			return err
		}
	}
	return nil
}

func (d *draft) containerHints(ctr *v1.Container) []topology.Hints {
	out := []topology.Hints{d.devices.Hints(ctr)}
	if d.m.cpus != nil {
		out = append(out, d.m.cpus.Hints(d.pod, ctr, d.cpus))
	}
	if d.m.memory != nil {
		out = append(out, d.m.memory.Hints(d.pod, ctr, d.nodes))
	}
	return out
}

func (d *draft) podHints() []topology.Hints {
	out := []topology.Hints{d.devices.PodHints()}
	if d.m.cpus != nil {
		out = append(out, d.m.cpus.PodHints(d.pod, d.cpus))
	}
	if d.m.memory != nil {
		out = append(out, d.m.memory.PodHints(d.pod, d.nodes))
	}
	return out
}

// takeFrom assigns a container's resources from the nodes of a hint.
func (d *draft) takeFrom(ctr *v1.Container, h topology.Hint) error {
	m := d.m
	if err := d.devices.Reserve(ctr, h.Nodes); err != nil {
		return err
	}
	if m.cpus != nil && demand.ExclusiveCPUs(d.pod, ctr) > 0 {
		err := m.cpus.Assign(d.pod, ctr, h.Nodes, d.cpus)
		m.metrics.countPinning(&m.metrics.cpu, err)
		if err != nil {
			return err
		}
	}
	if m.memory != nil && len(memorymanager.RequestedMemory(d.pod, ctr)) > 0 {
		err := m.memory.Assign(d.pod, ctr, h, d.nodes)
		m.metrics.countPinning(&m.metrics.memory, err)
		if err != nil {
			return err
		}
	}
	return nil
}

// buildRows returns the rows with the pod's CPUs and memory.
func (d *draft) buildRows() (out []store.Devices, err error) {
	now := time.Now().UnixMicro() // loadRows sorts the rows by this time
	for i, ctr := range orderedContainers(d.pod) {
		if set, has := d.cpus[d.pod.UID][ctr.Name]; has {
			out = append(out, store.Devices{UID: d.pod.UID, Container: ctr.Name, Resource: rowCPU, Count: set.Size(),
				Given: []byte(set.String())})
		}
		if blocks, has := d.nodes.Blocks(d.pod.UID, ctr.Name); has {
			kind, _ := podspec.Find(&d.pod.Spec, ctr.Name)
			data, err := json.Marshal(memoryRow{Seq: now + int64(i), Init: kind == podspec.Init, Blocks: blocks})
			if err != nil {
				return nil, err
			}
			out = append(out, store.Devices{UID: d.pod.UID, Container: ctr.Name, Resource: rowMemory, Count: len(blocks),
				Given: data})
		}
	}
	return out, nil
}
