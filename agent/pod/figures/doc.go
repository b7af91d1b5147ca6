// Package figures counts what the node does, in metrics with a kubelet's names: actions of the workers, starts of
// pods, and traffic to the control plane.
//
//	workers --Do--> Actor --> executor
//	pods --RecordStatus--> Figures                 link --> Link
//	            all of it --> /metrics
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package figures
