// Package operations counts what the container runtime and the images are asked, under the
// names that a kubelet has for it, and knows how long the images of a pod were pulled.
//
//	worker, server --call--> Runtime, Images, Pulls --> the runtime
//	                              |
//	                              v
//	                          Operations --> /metrics, pod/figures
//
// https://kubernetes.io/docs/reference/instrumentation/metrics/
package operations
