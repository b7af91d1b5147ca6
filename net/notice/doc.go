// Package notice reports changes of links, addresses, routes, forwarding sysctls and the nftables
// ruleset of a network namespace. It uses no CPU time while nothing changes.
//
//	kernel --route netlink------\
//	                             >-- Listen --Notice--> net/cni, which repairs its network
//	kernel --nftables monitor---/
//
// A notice identifies the changed object. The receiver decides whether the change matters. If the kernel drops messages because the buffer
// of a socket is full, the receiver gets one notice of kind NoticesLost.
package notice
