// Package operations counts and times the calls to the container runtime and the image
// service, under a kubelet's metric names, and computes how long a pod's images were pulled.
//
//	worker, server --call--> Runtime, Images, Pulls --> the runtime
//	                              |
//	                              v
//	                          Operations --> /metrics, pod/figures
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package operations
