// Package netns runs functions and opens netlink sockets in network namespaces.
//
//	caller --> NS.Do(f) --> goroutine on an OS thread of its own: setns, f, setns back
//	caller --> NS.Netlink() --> a handle whose socket lives there; used from anywhere
//	caller --> NS.Socket() --> Send: many requests and their results in two system calls
//
// The node's network namespace is also passed as an NS. In the agent it is the process's own namespace (the zero NS). In a test it is a
// separate namespace, so that no test changes the host.
//
// The start and the end of each pod use this package. Therefore Visit, Socket and SwapHere do a lot in one visit to the pod's namespace,
// with few system calls. Tests compare Counts.
package netns
