package plan

import "time"

// When the machine shuts down, its pods are stopped. The next boot starts them again, as after a power failure.
//
//	runs --ShutdownSince--> hooks, StopContainer, StopSandbox --> at rest --boot--> RunSandbox, next attempts
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

// AtRest reports whether no sandbox or container of a pod is running or being started.
func AtRest(in Input) bool {
	for _, f := range in.InFlight {
		switch f.Op {
		case RunSandbox, StartContainer, StopContainer, StopSandbox, RemoveContainer, PreStop:
			return false
		}
	}
	p := planner{Input: in}
	return !p.isRunning()
}
