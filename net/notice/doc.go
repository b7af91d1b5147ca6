// Package notice reports changes of links, addresses, routes, forwarding sysctls and the nftables
// ruleset of a network namespace. It uses no CPU time while nothing changes.
//
//	kernel --route netlink------\
//	                             >-- Listen --Notice--> net/cni, which repairs its network
//	kernel --nftables monitor---/
//
// A notice names the changed object. Its receiver decides whether the change matters. If a socket's buffer is full and the kernel drops
// messages, the receiver gets one notice of kind NoticesLost.
package notice
