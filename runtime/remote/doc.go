// Package remote adapts a runtime at a CRI socket (containerd, CRI-O, cri-dockerd) to the behaviour
// of the built-in runtime. Calls have timeouts. Creating the same object again returns the existing
// object. Changes are reported even if the runtime has no events. Streams need no URL.
//
//	agent --calls, each with a deadline--> Client --CRI--> containerd, CRI-O ...
//	Run: Status every 5 s: does the runtime respond, are runtime and network ready? --Changed--> agent
//	ContainerEvents: GetContainerEvents, and a comparison of lists every 30 s; without
//	                 GetContainerEvents every second or every 4 s
//	Streaming: Stream, Forward --Exec, Attach, PortForward--> URL --SPDY on this machine--> process
//
// The runtime runs as root and is trusted. Nevertheless, the size of its responses is limited, and
// its streaming URLs must be on this machine.
package remote
