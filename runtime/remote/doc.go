// Package remote adapts the runtime at a CRI socket (containerd, CRI-O, cri-dockerd), so that it
// behaves for the agent like the runtime in its own process. Every call has a timeout. A second
// creation of the same object is no error. Changes are reported even if the runtime has no events.
// Streams need no URL.
//
//	agent --calls, each with a deadline--> Client --CRI--> containerd, CRI-O ...
//	Run: is it there, is it ready, is its network? --Changed--> agent
//	ContainerEvents: GetContainerEvents, and a slow comparison of lists; without
//	                 GetContainerEvents a quick one, while something may change
//	Streaming: Stream, Forward --Exec, Attach, PortForward--> URL --SPDY on this machine--> process
//
// The runtime runs as root and is trusted to run pods. Nevertheless the size of its responses is
// limited, and its streaming URLs must be on this machine.
package remote
