// Package call carries out one call to a container: a command inside of it, an HTTP
// request, a TCP connection or a gRPC health check. Probes and lifecycle hooks make
// such calls; what an answer means is theirs to say.
//
//	probe, hook --Exec--> cri.Runtime --> a process in the container
//	            --Get, Connect, Check--> the pod's address, or another host that the action names
//
// The other end belongs to the pod and is not trusted: each call ends with its context
// or its timeout, keeps MaxOutput bytes of an answer at most, follows redirects only to
// the host that was asked first, uses no proxy and keeps no connection. Nothing runs, and
// nothing is held, between two calls.
package call
