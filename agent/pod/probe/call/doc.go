// Package call makes a single call to a container: it runs a command, sends an HTTP request, opens a TCP connection
// or makes a gRPC health check. It is used by probes and lifecycle hooks, which interpret the answer.
//
//	probe, hook --Exec--> cri.Runtime --> a process in the container
//	            --Get, Connect, Check--> the pod's address, or another host that the action names
//
// The peer belongs to the pod and is not trusted. A call ends with its context or its timeout, keeps at most
// MaxOutput bytes of an answer, and follows redirects only to the same host. It uses no proxy, and its connection is
// not reused. The package has no goroutines and no state between calls.
package call
