// Package notice reports changes in a network namespace: of links, addresses, routes, the
// forwarding sysctls and the nftables ruleset. It costs nothing while nothing changes.
//
//	kernel --route netlink------\
//	                             >-- Listen --Notice--> net/cni, which repairs its network
//	kernel --nftables monitor---/
//
// A notice names the changed object. It does not say whether the change matters: the reader knows
// its own objects. If the kernel drops messages because a socket's buffer is full, one notice of
// kind Lost replaces them.
package notice
