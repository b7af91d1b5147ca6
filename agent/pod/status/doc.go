// Package status makes the v1.PodStatus that a kubelet would report. It is pure:
// the planner's input says everything, and the status before gives the times at
// which conditions last changed.
//
//	worker.Set.Input(uid), status before --> Make --> API, local commands, outbox
package status
