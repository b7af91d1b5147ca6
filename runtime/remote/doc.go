// Package remote adapts the runtime at a CRI socket (containerd, CRI-O, cri-dockerd) for the agent,
// so that it behaves like the one in its own process: every call has a timeout, creating something
// twice is success, changes are reported even if the runtime has no events, and streams need no
// URL.
//
//	agent --calls, each with a deadline--> Client --CRI--> containerd, CRI-O ...
//	Run: is it there, is it ready, is its network? --Changed--> agent
//	ContainerEvents: GetContainerEvents, and a slow comparison of lists; without
//	                 GetContainerEvents a quick one, while something may change
//	Streaming: Stream, Forward --Exec, Attach, PortForward--> URL --SPDY on this machine--> process
//
// The runtime runs as root and is trusted to run pods. Its responses are bounded nevertheless, and
// its streaming URLs must be on this machine.
package remote
