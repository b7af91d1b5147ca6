package worker

import (
	"time"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// defaultGrace is the grace period of pods without a spec, or without a period in it.
const defaultGrace = 30 * time.Second

// gracePeriod returns the time between the stop signal and the end of the pod's containers: the period of the deletion, or else the period
// of the spec. A failure or a shutdown of the node may shorten it. During a shutdown, most is the maximum. Package plan subtracts the time
// that has passed and the time of preStop hooks (grace_left.go), and probes have periods of their own.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
func gracePeriod(in *plan.Input, most time.Duration) time.Duration {
	grace := in.Grace // of the deletion
	switch {
	case in.Want == nil:
		grace = defaultGrace
	case !in.Deleting:
		grace = defaultGrace
		if g := in.Want.Spec.TerminationGracePeriodSeconds; g != nil {
			grace = time.Duration(*g) * time.Second
		}
	}
	if in.End != nil && in.End.Grace > 0 {
		grace = min(grace, in.End.Grace)
	}
	if !in.ShutdownSince.IsZero() {
		grace = min(grace, most)
	}
	return grace
}
