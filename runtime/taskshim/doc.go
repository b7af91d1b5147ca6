// Package taskshim runs the containers of a pod by a containerd shim: a program of
// others, such as containerd-shim-runsc-v1 or containerd-shim-kata-v2, which speaks
// containerd's runtime v2 protocol. There is one process of it per pod.
//
//	Start      --> "shim -namespace .. -id SANDBOX start" in the sandbox's bundle
//	               it says its address, which is kept in the bundle
//	Run        --> FIFOs in the bundle, one of our own shims holds them (Streams)
//	               task API over ttrpc: Create, Start, Wait
//	  Wait ends --> the streams are let go, then Ended
//	Load       --> after a restart of the agent: connect, State of each container, Wait
//	Discard    --> "shim delete" for a container whose shim has died
//
// Two programs share the work, because each does what it is good at: the containerd
// shim has the processes, wherever they are; our own shim has the log, its rotation
// and whoever is attached, and goes on with them while no agent is there.
//
// https://github.com/containerd/containerd/blob/main/core/runtime/v2/README.md
package taskshim
