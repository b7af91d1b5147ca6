// Package cri is the contract between the agent and a container runtime. Its
// interfaces have the shape of the CRI server interfaces (k8s.io/cri-api), so
// that the runtime in this process satisfies them without an adapter, and the
// same object can be served on a socket for crictl.
//
//	agent/pod/life/worker, observe ... --> cri.Runtime, cri.Images
//	                                 ^            ^
//	                   runtime/ctrd (in process)  Dial(endpoint) --gRPC--> containerd, CRI-O
//
// Errors satisfy errdefs.IsNotFound and its kin (github.com/containerd/errdefs)
// on every implementation, also behind a socket. Neither side keeps or changes
// a message that it was given.
package cri
