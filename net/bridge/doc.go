// Package bridge makes a Linux bridge in the node's network namespace and plugs
// pods into it with veth pairs.
//
//	node namespace                                   pod namespace
//	route, nftables -- islet0 (gateway address) -- veth ======= eth0 (pod address)
//
// Everything is one netlink message per fact and waits for nothing: duplicate
// address detection is off (ipam has seen to that), and Attach makes the kernel
// evaluate the carrier at once instead of polling for the state of the port.
package bridge
