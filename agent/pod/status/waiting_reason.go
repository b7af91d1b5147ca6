package status

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// waitingState returns the state of a container that has not started yet. It is not inlined, because copies would enlarge the program.
//
//go:noinline
func (m *maker) waitingState() v1.ContainerState {
	w := &v1.ContainerStateWaiting{Reason: m.waitingReason(), Message: m.sandboxFailure()}
	if m.in.Waiting {
		w.Message = "waiting until an earlier pod with this name has ended on this node"
	}
	return stateWaiting(w)
}

// waitingReason returns the reason for which a container waits without a failure. In a pod with init containers it is
// PodInitializing for every container, also after the init containers have completed. kubectl and programs that read
// this reason expect it, because a kubelet does the same.
func (m *maker) waitingReason() string {
	if len(m.pod.Spec.InitContainers) > 0 {
		return plan.PodInitializing
	}
	return plan.ContainerCreating
}

// sandboxFailure returns the reason and the message of a failure to run the sandbox. Without a sandbox no container
// of the pod can run. A kubelet reports this failure only as an event, which a node without an API server could not
// show.
func (m *maker) sandboxFailure() string {
	f, ok := m.in.Failed[plan.Key{Op: plan.RunSandbox}]
	if !ok || m.sandbox.Ready {
		return ""
	}
	return f.Reason + ": " + f.Message
}

// waitingAfter returns the state of a container that could not be started. After a failed pull the reason is
// ErrImagePull. Later it is ImagePullBackOff, until the next pull.
func (m *maker) waitingAfter(ctr *v1.Container, f plan.Failure) *v1.ContainerStateWaiting {
	w := &v1.ContainerStateWaiting{Reason: f.Reason, Message: f.Message}
	switch {
	case f.Reason == "":
		w.Reason = plan.CreateContainerError
	case f.Reason == plan.ErrImagePull && m.in.Now.Sub(f.At) >= plan.PullSettle && m.in.Now.Before(f.Retry):
		w.Reason = plan.ImagePullBackOff
		w.Message = fmt.Sprintf("Back-off pulling image %q: %s: %s", ctr.Image, plan.ErrImagePull, f.Message)
	}
	return w
}

// crashLoop returns the state of a container in crash back-off. It returns nil for a container that starts again
// without a delay, for example in a new sandbox.
func (m *maker) crashLoop(ctr *v1.Container, c plan.Container) *v1.ContainerStateWaiting {
	at, delay := plan.NextStart(c, m.in.CrashMax)
	if c.SandboxID != m.sandbox.ID || !m.sandbox.Ready || !m.in.Now.Before(at) || m.in.RestartRequested(c) {
		return nil
	}
	return &v1.ContainerStateWaiting{Reason: plan.CrashLoopBackOff,
		Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s", formatSeconds(delay), ctr.Name, podFullName(m.pod))}
}

// formatSeconds formats a duration in whole seconds: 10s, 1m20s, 5m0s.
func formatSeconds(d time.Duration) string { return d.Round(time.Second).String() }
