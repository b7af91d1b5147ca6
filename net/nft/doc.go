// Package nft maintains the nftables tables for pods over netlink. It does not use the programs nft
// or iptables.
//
//	Table{Masquerade, Local, Ports} --Replace, UpdateTables--> one batch --> table ip <name>, table ip6 <name>
//	                                 <------Load-------- the kernel (owners are in comments)
//
// A table is replaced in one transaction, so each packet is processed either by the complete old table or by the complete new one. All
// variable data are elements of sets, so most changes add and remove only a few elements. Existing connections keep their translation,
// which is stored in the connection tracking table.
//
// The chains of a table for IPv4 (a table for IPv6 has the same chains, except guard):
//
//	guard        raw prerouting   from another host to 127.0.0.0/8: drop. A host port at 127.0.0.1
//	                              needs route_localnet of the bridge, through which pods could
//	                              otherwise reach the node's loopback addresses
//	prerouting   nat dstnat       to an address of the node: jump hostports
//	output       nat dstnat       to an address of the node: jump hostports
//	hostports                     (address, protocol, port) in by_address, else (protocol, port)
//	                              in by_port: set the mark, dnat
//	postrouting  nat srcnat       marked, from a pod or loopback: masquerade, because the reply
//	                              has to come back through the node;
//	                              from masquerade, to neither local nor multicast: masquerade
//
// A table cannot accept packets that the table of a firewall drops; see AllowForwarding.
package nft
