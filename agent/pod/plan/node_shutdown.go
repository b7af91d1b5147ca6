package plan

import "time"

// When the machine shuts down, its pods are stopped. The next boot starts them again, as after a power failure.
//
//	runs --ShutdownSince--> hooks, StopContainer, StopSandbox --> Unmount --> at rest --boot--> RunSandbox, next attempts
//
// The volumes are unmounted while the pods of their drivers, which have a higher priority, still run. The pod keeps its files, devices and
// addresses.
//
// A kubelet sets such a pod to Failed, and the pod's controller creates another pod. An edge node may have no
// connection to the controller for a long time.
// https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/

// EndedSince reports whether a container ended at or after a time. It compares how long ago both times are, because
// the clock may have been set between them: the runtime reports the container's end as a wall-clock time.
func (in Input) EndedSince(c Container, at time.Time) bool {
	ago := in.Now.Round(0).Sub(c.FinishedAt)
	return c.State == Exited && !in.Now.Add(-ago).Before(at)
}

// shutsDown reports whether the pod must stop because the machine shuts down. It returns false for a pod that ends for another reason, and
// for a pod that is not yet admitted: such a pod is rejected during a shutdown.
func (in Input) shutsDown() bool {
	return in.Want != nil && !in.Deleting && in.End == nil && !in.ShutdownSince.IsZero() && in.Admitted
}

// AtRest reports whether the machine may shut down as far as a pod is concerned: no sandbox or container of the pod is running or being
// started, and its volumes are unmounted.
func AtRest(in Input) bool {
	for _, f := range in.InFlight {
		switch f.Op {
		case RunSandbox, StartContainer, StopContainer, StopSandbox, RemoveContainer, PreStop, Ended, Forget, Unmount:
			return false
		}
	}
	p := planner{Input: in}
	switch {
	case p.isRunning():
		return false
	case in.Want == nil:
		return true
	case in.Deleting:
		return in.Forgotten
	case in.End != nil:
		return in.Ended
	}
	return in.Unmounted || !in.Admitted
}
