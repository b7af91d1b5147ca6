// Package netns reaches into network namespaces: it runs functions there and
// opens netlink sockets there.
//
//	caller --> NS.Do(f) --> goroutine on an OS thread of its own: setns, f, setns back
//	caller --> NS.Netlink() --> a handle whose socket lives there; used from anywhere
//
// The node's side of every network is an NS too. In the agent it is the
// process's own namespace (the zero NS), in a test one that the test made: so
// no test touches the host.
package netns
