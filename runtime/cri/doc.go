// Package cri is the interface between the agent and a container runtime. Its Go interfaces equal
// the server interfaces of the CRI (k8s.io/cri-api). So the runtime in this process needs no
// adapter, and the same object can be served on a socket for crictl.
//
//	agent/pod/life/worker, observe ... --> cri.Runtime, cri.Images
//	                                 ^            ^
//	                   runtime/ctrd (in process)  Dial(endpoint) --gRPC--> containerd, CRI-O
//
// The errors of every implementation satisfy errdefs.IsNotFound and the similar functions of
// github.com/containerd/errdefs, also over a socket. Neither side retains or modifies a message
// that it receives.
package cri
