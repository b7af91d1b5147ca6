// Package address finds the addresses of this machine: for each IP family, the address of the default route. An address is kept as long
// as it is usable.
//
//	kernel --routes--> default route --its source, or its link--> candidates
//	                                                                |
//	       the previous address, if it is still a candidate <-------'--> the best
//
// The address of a bridge of containers, such as docker0, is used only if the machine has no other address and never had one.
//
// Temporary (privacy), deprecated and tentative IPv6 addresses are not used, because they change
// while the machine stays in the same network (RFC 8981, RFC 4862).
package address
