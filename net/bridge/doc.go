// Package bridge creates a Linux bridge in the node's network namespace and connects pods to it
// with veth pairs.
//
//	node namespace                                   pod namespace
//	route, nftables -- islet0 (gateway address) -- veth ======= eth0 (pod address)
//
// Each setting is one netlink message. The package does not poll. Duplicate address detection is off, because package ipam assigns each
// address only once. Attach makes the kernel evaluate the carrier immediately.
package bridge
