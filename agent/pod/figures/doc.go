// Package figures counts what the node does, under the names that a kubelet has for
// it: actions of the workers, starts of pods, and the way to the control plane.
//
//	workers --Do--> Actor --> executor
//	pods --Running--> Figures                 link --> Link
//	            all of it --> /metrics
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package figures
