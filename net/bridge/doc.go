// Package bridge creates a Linux bridge in the node's network namespace and connects pods to it
// with veth pairs.
//
//	node namespace                                   pod namespace
//	route, nftables -- islet0 (gateway address) -- veth ======= eth0 (pod address)
//
// Each setting is one netlink message, and nothing is polled: duplicate address detection is off,
// because ipam assigns each address once, and Attach makes the kernel evaluate the carrier at once.
package bridge
