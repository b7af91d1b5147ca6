// Package notice tells what the kernel reports of a network namespace: links,
// addresses, routes, the forwarding sysctls and the nftables ruleset. It costs nothing
// while nothing changes.
//
//	kernel --route netlink------\
//	                             >-- Listen --Notice--> net/cni, which repairs its network
//	kernel --nftables monitor---/
//
// A notice says which object changed, not whether that matters: the reader knows its
// own objects. When more was reported than the sockets hold, one notice of kind Lost
// takes the place of what is missing.
package notice
