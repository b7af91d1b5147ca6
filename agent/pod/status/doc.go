// Package status computes the v1.PodStatus that a kubelet would report. It is pure: everything is computed from the
// planner's input. Only the times at which conditions last changed come from the previous status.
//
//	worker.Set.Input(uid), status before --> Compute --> API, local commands, outbox
package status
