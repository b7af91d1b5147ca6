package status

import (
	"fmt"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/clock"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/podspec"
)

// Host contains the facts about the node that are needed for a pod's status.
type Host struct {
	IPs     []string // the primary address is the first
	Runtime string   // prefix of container IDs, such as containerd
	// ReadOnlyTrees reports whether the runtime supports recursive read-only mounts for a pod. If it is nil, they are
	// not supported.
	ReadOnlyTrees func(*v1.Pod) bool
	// Devices returns the status of a container's devices.
	Devices func(*v1.Pod, *v1.Container) []v1.ResourceStatus
	// MissingDevices returns one sentence for each missing device of a pod. It may be nil.
	MissingDevices func(pod types.UID) []string
}

// startTime returns the start time of a pod. It returns the start time in the previous status, unless that time was
// recorded before the clock was set.
func startTime(now time.Time, before *metav1.Time) *metav1.Time {
	switch {
	case before != nil && clock.IsSet(before.Time) && (now.IsZero() || before.Time.Before(now)):
		return before
	case now.IsZero():
		return nil
	}
	return toSeconds(now)
}

// Compute returns the status of in.Want, which must not be nil.
func Compute(in plan.Input, before v1.PodStatus, host Host) v1.PodStatus {
	m := maker{in: in, pod: in.Want, host: host, previous: before}
	m.sandbox, _ = in.Observed.Sandbox()
	m.end, m.round = m.podEnd(), plan.CurrentRound(in)
	st := v1.PodStatus{ObservedGeneration: m.pod.Generation, QOSClass: demand.Class(m.pod)}
	st.StartTime = startTime(in.Started, before.StartTime)
	m.addContainers(&st)
	boundMessages(&st)
	st.Phase = m.podPhase(&st)
	st.Reason, st.Message = m.phaseReason(st.Phase)
	m.addPodResources(&st)
	m.setAddresses(&st, before)
	m.setConditions(&st, before) // the messages of conditions list containers in the order of the spec
	sortStatuses(st.ContainerStatuses)
	sortStatuses(st.EphemeralContainerStatuses)
	return st
}

type maker struct {
	in       plan.Input
	pod      *v1.Pod
	host     Host
	previous v1.PodStatus
	sandbox  plan.Sandbox
	end      *plan.End // the decision or the deadline that ended the pod, or nil
	round    uint32    // the pod's current round, see plan.CurrentRound
}

// addContainers adds the statuses of all containers. A rejected pod has no such statuses.
func (m *maker) addContainers(st *v1.PodStatus) {
	if m.end != nil && len(m.in.Observed.Containers)+len(m.previous.ContainerStatuses) == 0 {
		return
	}
	for kind, ctr := range podspec.Containers(&m.pod.Spec) {
		switch c := m.containerStatus(ctr, kind); kind {
		case podspec.Main:
			// A kubelet does not report the devices of init containers.
			if m.host.Devices != nil {
				c.AllocatedResourcesStatus = m.host.Devices(m.pod, ctr)
			}
			st.ContainerStatuses = append(st.ContainerStatuses, c)
		case podspec.Ephemeral:
			st.EphemeralContainerStatuses = append(st.EphemeralContainerStatuses, c)
		default:
			st.InitContainerStatuses = append(st.InitContainerStatuses, c)
		}
	}
}

// sortStatuses sorts the statuses of containers by name, as a kubelet does. The statuses of init containers keep the order of the spec.
// slices.SortFunc would enlarge the program by a copy of its code for this type.
func sortStatuses(list []v1.ContainerStatus) {
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
}

// isInitialized reports whether the init containers have completed. A pod that was initialized remains initialized
// while all its containers restart (KEP-5532).
func (m *maker) isInitialized() bool {
	if len(m.pod.Spec.InitContainers) == 0 || plan.MainContainerCreated(m.in, m.sandbox) {
		return true
	}
	return len(m.uninitializedNames()) == 0 || m.round > 0 && podspec.HasCondition(&m.previous, v1.PodInitialized)
}

func (m *maker) uninitializedNames() (names []string) {
	for i := range m.pod.Spec.InitContainers {
		ctr := &m.pod.Spec.InitContainers[i]
		c, ok := m.in.Observed.Newest(ctr.Name)
		done := plan.Completed(m.in, c)
		if podspec.IsSidecar(ctr) {
			done = plan.IsStarted(m.in, c)
		}
		if !ok || !done || c.SandboxID != m.sandbox.ID || c.Round < m.round {
			names = append(names, ctr.Name)
		}
	}
	return names
}

// setAddresses sets the addresses of the host and of the sandbox. A pod that has ended keeps its last
// addresses.
func (m *maker) setAddresses(st *v1.PodStatus, before v1.PodStatus) {
	for _, ip := range m.host.IPs {
		st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
	}
	ips := m.sandbox.IPs
	if m.pod.Spec.HostNetwork && m.sandbox.ID != "" {
		ips = m.host.IPs
	}
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
	if len(ips) == 0 && (st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed) {
		st.PodIPs = slices.Clone(before.PodIPs)
	}
	if len(st.PodIPs) > 0 {
		st.PodIP = st.PodIPs[0].IP
	}
	if len(st.HostIPs) > 0 {
		st.HostIP = st.HostIPs[0].IP
	}
}

// toSeconds truncates a time to whole seconds, which is the precision of the API.
func toSeconds(t time.Time) *metav1.Time {
	s := metav1.NewTime(t).Rfc3339Copy()
	return &s
}

func podFullName(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}
