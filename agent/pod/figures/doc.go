// Package figures provides metrics of the workers' actions, of the starts of pods, and of the traffic to the control
// plane. Their names are the same as in a kubelet.
//
//	workers --Do--> Actor --> executor
//	pods --RecordStatus--> Figures                 link --> Link
//	            all of it --> /metrics
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package figures
