// Package operations has the metrics of calls to the container runtime and the image service, with the kubelet's
// names. It also computes how long the pulls of a pod's images took.
//
//	worker, server --call--> Runtime, Images, Pulls --> the runtime
//	                              |
//	                              v
//	                          Operations --> /metrics, pod/figures
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package operations
