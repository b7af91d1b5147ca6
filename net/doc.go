// Package net contains no code. The packages below it are the network of pods.
//
//	address  the addresses of this machine
//	bridge   the bridge and the veths of pods
//	cni      sets up the network of a sandbox, and contains the CNI plugins
//	ipam     the addresses of sandboxes
//	netns    functions and sockets in a network namespace
//	nft      nftables tables
//	notice   reports changes of the network
//	portmap  host ports
//	uplink   signals that the connection of the machine may have changed
package net
