// Package address finds the addresses that this machine is reached at: one per
// family, that of the default route, and the same one for as long as it holds.
//
//	kernel --routes--> default route --its source, or its link--> candidates
//	                                                                |
//	            the address of before, if it is still one  <--------'--> the best
//
// Temporary (privacy), deprecated and tentative IPv6 addresses are none: they change
// while the machine stays where it is (RFC 8981, RFC 4862).
package address
