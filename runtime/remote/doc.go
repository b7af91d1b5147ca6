// Package remote makes the runtime behind a CRI socket (containerd, CRI-O, cri-dockerd)
// as fit for the agent as the one in its own process: every call has an end, making
// something twice is success, changes are told though the runtime may have no events,
// and streams need no detour over a URL.
//
//	agent --calls, each with a deadline--> Client --CRI--> containerd, CRI-O ...
//	Run: is it there, is it ready, is its network? --Changed--> agent
//	ContainerEvents: GetContainerEvents, and a slow comparison of lists; without
//	                 GetContainerEvents a quick one, while something may change
//	Streaming: Stream, Forward --Exec, Attach, PortForward--> URL --SPDY on this machine--> process
//
// The runtime is trusted with what it runs, as the root's program that it is. What it
// answers is bounded all the same, and what it may send the agent to is this machine.
package remote
