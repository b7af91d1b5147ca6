package status

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/podspec"
)

// maxMessages is the maximum total size of the termination messages of a pod's containers, as in a kubelet.
const maxMessages = 12 << 10

// containerStatus returns the status of one container.
func (m *maker) containerStatus(ctr *v1.Container, kind podspec.Kind) v1.ContainerStatus {
	c, ok := m.in.Observed.Newest(ctr.Name)
	if !ok {
		if old := m.keptStatus(ctr, kind); old != nil {
			return *old
		}
	}
	st := v1.ContainerStatus{Name: ctr.Name, Image: ctr.Image, RestartCount: m.restartCount(ctr.Name), VolumeMounts: m.mountStatuses(ctr)}
	started := plan.IsStarted(m.in, c)
	if kind != podspec.Ephemeral { // ephemeral containers have no probes
		st.Started = &started
	}
	if ok {
		m.setReported(&st, ctr, c)
	}
	m.addSize(&st, ctr, c, ok)
	st.State = m.containerState(ctr, c, kind)
	if last, ok := m.in.Observed.LastExited(ctr.Name); ok && st.State.Terminated == nil {
		st.LastTerminationState.Terminated = m.terminatedState(last)
	}
	switch kind {
	case podspec.Init:
		st.Ready = plan.Completed(m.in, c) && ok && !m.waitsForRound(c, kind) || !ok && st.State.Terminated != nil
	case podspec.Sidecar, podspec.Main:
		h, probed := m.in.Health[c.ID]
		st.Ready = started && (!probed || h.Ready)
	}
	return st
}

// restartCount returns the number of restarts of a container, which is the number of its newest attempt. An attempt in progress
// does not count until its container runs or its start has failed. A kubelet behaves in the same way, because it sends no status in
// between. Programs use the change of this number to measure the pause before a restart.
func (m *maker) restartCount(name string) int32 {
	c, _ := m.in.Observed.Newest(name)
	if _, failed := m.in.Failed[plan.Key{Container: name, Op: plan.StartContainer}]; c.State == plan.Created && !failed {
		c, _ = m.in.Observed.LastExited(name)
	}
	n := int32(c.Attempt)
	for st := range podspec.Statuses(&m.previous) {
		if st.Name == name && !m.startsAgain() { // also if the record is lost
			n = max(n, st.RestartCount)
		}
	}
	return n
}

// startsAgain reports whether the previous status is the last one of an earlier life of the pod, so that all containers begin again.
func (m *maker) startsAgain() bool {
	return (m.previous.Phase == v1.PodSucceeded || m.previous.Phase == v1.PodFailed) && !m.noneWillStart()
}

// setReported sets the fields whose values the runtime reports.
func (m *maker) setReported(st *v1.ContainerStatus, ctr *v1.Container, c plan.Container) {
	st.ContainerID = m.containerID(c)
	st.ImageID = c.ImageID
	if c.Image != "" {
		st.Image = c.Image
	}
	st.User = userStatus(c.User)
	if l := ctr.Lifecycle; c.StopSignal != "" && l != nil && l.StopSignal != nil { // a kubelet without the feature has no such status field
		st.StopSignal = new(v1.Signal(c.StopSignal))
	}
}

// containerState returns the state of a container. If the runtime has no such container, c is the zero value, whose state is
// Created.
func (m *maker) containerState(ctr *v1.Container, c plan.Container, kind podspec.Kind) v1.ContainerState {
	failure, failed := m.in.Failed[plan.Key{Container: ctr.Name, Op: plan.StartContainer}]
	switch {
	case c.State == plan.Running && !m.noneWillStart() && (plan.HookFailed(m.in, c) || plan.PostStartRunning(m.in, c)):
		return stateWaiting(m.hookState(c))
	case c.State == plan.Running:
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: *toSeconds(c.StartedAt)}}
	case c.State == plan.Exited:
		return m.exitedState(ctr, c, kind)
	case failed:
		return stateWaiting(m.waitingAfter(ctr, failure))
	case c.State == plan.Unknown:
		return v1.ContainerState{Terminated: lostState(m.containerID(c))}
	case c.ID == "" && m.isInitOver(kind):
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed", Message: initLost}}
	}
	return m.waitingState()
}

// initLost is a kubelet's message for an init container of an initialized pod, of which the runtime has no record.
const initLost = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"

// isInitOver reports whether containers of the kind have completed because the pod is initialized in its sandbox.
func (m *maker) isInitOver(kind podspec.Kind) bool {
	return kind == podspec.Init && plan.MainContainerCreated(m.in, m.sandbox)
}

// exitedState returns the state of a container that has ended: terminated, or waiting for the next start. The
// first matching case applies. The order is the same as in a kubelet: first the end of the pod, then a failure to
// start the container, then a back-off.
func (m *maker) exitedState(ctr *v1.Container, c plan.Container, kind podspec.Kind) v1.ContainerState {
	failure, failed := m.in.Failed[plan.Key{Container: ctr.Name, Op: plan.StartContainer}]
	backOff := m.crashLoop(ctr, c)
	switch {
	case m.endsForShutdown() && plan.RunsAgain(m.in, ctr, c):
		// If the state were terminated, the API server would refuse the restart of a container with the restart policy Never, or with
		// OnFailure and the exit code 0.
		return stateWaiting(&v1.ContainerStateWaiting{Reason: plan.ContainerCreating, Message: nodeShutdown})
	case m.noneWillStart() || !m.willRestart(ctr, c):
		return v1.ContainerState{Terminated: m.terminatedState(c)}
	case failed:
		return stateWaiting(m.waitingAfter(ctr, failure))
	case m.waitsForRound(c, kind) && backOff == nil:
		return stateWaiting(&v1.ContainerStateWaiting{Reason: plan.RestartingAllContainers, Message: restartingAll})
	case m.waitsForRound(c, kind):
		return stateWaiting(backOff)
	case backOff != nil && !(plan.RunsAgain(m.in, ctr, c) && (plan.DefinitionChanged(ctr, c) || plan.ResizeNeedsRestart(m.in, c))):
		return stateWaiting(backOff)
	case plan.HookFailed(m.in, c):
		return stateWaiting(m.hookState(c))
	case plan.RunsAgain(m.in, ctr, c): // the state terminated would mean that a container with the policy Never has completed
		return m.waitingState()
	}
	return v1.ContainerState{Terminated: m.terminatedState(c)}
}

func stateWaiting(w *v1.ContainerStateWaiting) v1.ContainerState {
	return v1.ContainerState{Waiting: w}
}

// userStatus returns the IDs with which a container runs, if the runtime reports them
// (KEP-3619).
func userStatus(u *plan.User) *v1.ContainerUser {
	if u == nil {
		return nil
	}
	return &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: u.UID, GID: u.GID, SupplementalGroups: u.Groups}}
}

// restartingAll is a kubelet's message for a container that was stopped because all containers of its pod restart.
const restartingAll = "The container is removed because RestartAllContainers in place"

// waitsForRound reports whether a container has ended in an earlier round of the pod and is waiting for its
// restart in the current round.
func (m *maker) waitsForRound(c plan.Container, kind podspec.Kind) bool {
	return kind != podspec.Ephemeral && c.State == plan.Exited && c.Round < m.round
}

// hookState returns the state of a container whose postStart hook is running or has failed. The container
// does not count as started. It is not inlined, because copies would enlarge the program.
//
//go:noinline
func (m *maker) hookState(c plan.Container) *v1.ContainerStateWaiting {
	if f := m.in.Failed[plan.Key{Container: c.Name, Op: plan.PostStart}]; f.ID == c.ID {
		return &v1.ContainerStateWaiting{Reason: plan.PostStartHookError, Message: f.Message}
	}
	return &v1.ContainerStateWaiting{Reason: m.waitingReason()}
}

// noneWillStart reports whether no container of the pod will start any more.
func (m *maker) noneWillStart() bool {
	return m.end != nil || m.in.Deleting || !m.in.ShutdownSince.IsZero() || plan.IsFinished(m.in)
}

// keptStatus returns the status that a container keeps although the runtime has no record of it. It returns nil if the container waits for
// its start. A container that has terminated, and that its restart policy does not start again, stays terminated until it runs: the API
// server would refuse every other state, also in the last status of the pod.
func (m *maker) keptStatus(ctr *v1.Container, kind podspec.Kind) *v1.ContainerStatus {
	for st := range podspec.Statuses(&m.previous) {
		if st.Name != ctr.Name {
			continue
		}
		if m.noneWillStart() && m.in.ShutdownSince.IsZero() {
			return lastTerminated(*st)
		}
		t := st.State.Terminated
		if t == nil {
			return nil
		}
		c := plan.Container{State: plan.Exited, ExitCode: t.ExitCode}
		if m.isInitOver(kind) || !m.startsAgain() && !m.willRestart(ctr, c) {
			return st
		}
	}
	return nil
}

// lastTerminated returns the status of a container that has run, with the state terminated. It returns nil if the container has not run.
func lastTerminated(c v1.ContainerStatus) *v1.ContainerStatus {
	switch t := c.LastTerminationState.Terminated; {
	case c.State.Terminated != nil:
		return &c
	case c.State.Running != nil:
		c.State = v1.ContainerState{Terminated: lostState(c.ContainerID)}
	case t != nil:
		c.State, c.LastTerminationState = v1.ContainerState{Terminated: t}, v1.ContainerState{}
	default:
		return nil
	}
	c.Ready, c.Started = false, new(bool)
	return &c
}

// lostState returns a kubelet's termination state for a container whose exit code is unknown.
func lostState(id string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown",
		Message: "The container could not be located when the pod was terminated", ContainerID: id}
}

// willRestart reports whether a container that has ended will run again.
func (m *maker) willRestart(ctr *v1.Container, c plan.Container) bool {
	kind, _ := podspec.Find(&m.pod.Spec, ctr.Name)
	switch {
	case kind == podspec.Ephemeral:
		return false
	case m.waitsForRound(c, kind):
		return true
	case kind == podspec.Init && plan.Completed(m.in, c):
		return false
	}
	return plan.WillRestart(m.in, ctr, c)
}

func (m *maker) terminatedState(c plan.Container) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, FinishedAt: *toSeconds(c.FinishedAt),
		ContainerID: m.containerID(c)}
	if !c.StartedAt.IsZero() {
		t.StartedAt = *toSeconds(c.StartedAt)
	} else {
		t.StartedAt = metav1.Time{}
	}
	if t.Reason == "" {
		t.Reason = "Completed"
		if c.ExitCode != 0 {
			t.Reason = "Error"
		}
	}
	return t
}

func (m *maker) containerID(c plan.Container) string {
	if c.ID == "" {
		return ""
	}
	return m.host.Runtime + "://" + c.ID
}

// boundMessages truncates termination messages so that their total size is at most maxMessages.
func boundMessages(st *v1.PodStatus) {
	var all []*v1.ContainerStateTerminated
	for c := range podspec.Statuses(st) {
		for _, t := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil && t.Message != "" {
				all = append(all, t)
			}
		}
	}
	for _, t := range all {
		if most := maxMessages / len(all); len(t.Message) > most {
			t.Message = strings.ToValidUTF8(t.Message[:most], "")
		}
	}
}
