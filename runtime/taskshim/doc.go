// Package taskshim runs the containers of a pod with a containerd shim, an external program such as
// containerd-shim-runsc-v1 or containerd-shim-kata-v2 that implements containerd's runtime v2
// protocol. Each pod has its own shim process.
//
//	Start      --> "shim -namespace .. -id SANDBOX start" in the sandbox's bundle
//	               prints its address, which is stored in the bundle
//	Run        --> FIFOs in the bundle; one of islet's own shims reads them (Streams)
//	               task API over ttrpc: Create, Start, Wait
//	  Wait ends --> the streams are released, then Ended
//	Load       --> after a restart of the agent: connect, State of each container, Wait
//	Discard    --> "shim delete" for a container whose shim has died
//
// The containerd shim runs the processes. islet's own shim serves their streams: it writes and
// rotates the log and serves attached clients. Neither depends on a running agent.
//
// https://github.com/containerd/containerd/blob/main/core/runtime/v2/README.md
package taskshim
