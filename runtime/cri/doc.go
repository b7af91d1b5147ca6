// Package cri defines the interface between the agent and a container runtime. The methods of
// Runtime and Images equal the CRI's server interfaces (k8s.io/cri-api). A runtime in this
// process is used directly, and Serve can serve it on a socket for crictl.
//
//	agent/pod/life/worker, observe ... --> cri.Runtime, cri.Images
//	                                 ^            ^
//	                   runtime/ctrd (in process)  Dial(endpoint) --gRPC--> containerd, CRI-O
//
// The errors of all implementations satisfy errdefs.IsNotFound and similar functions of
// github.com/containerd/errdefs, also over a socket. Neither side keeps or modifies a message of
// the other side.
package cri
