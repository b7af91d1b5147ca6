// Package notice reports changes of links, addresses, routes, forwarding sysctls and the nftables
// ruleset of a network namespace. It uses no CPU time while nothing changes.
//
//	kernel --route netlink------\
//	                             >-- Listen --Notice--> net/cni, which repairs its network
//	kernel --nftables monitor---/
//
// A notice names the changed object. The receiver of the notice decides whether the change matters.
// If the kernel drops messages because a socket's buffer is full, the receiver gets one notice of
// kind Lost instead.
package notice
