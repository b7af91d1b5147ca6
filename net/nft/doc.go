// Package nft keeps what pods need of nftables, over netlink: no nft or iptables
// program takes part.
//
//	Table{Masquerade, Local, Ports} --Replace, Change--> one batch --> table ip <name>, table ip6 <name>
//	                                 <------Load-------- the kernel (owners are in comments)
//
// A table is replaced in one transaction: packets see the old one or the new one.
// All that ever differs is in sets, so that a change of a table that is known is a
// few elements. Connections that exist keep their translation, as that is in the
// connection table.
//
// The chains of a table (IPv6 likewise, without guard):
//
//	guard        raw prerouting   from the wire to 127.0.0.0/8: drop. A host port at 127.0.0.1
//	                              needs route_localnet of the bridge, and pods shall not reach
//	                              the node's loopback by it
//	prerouting   nat dstnat       to an address of the node: jump hostports
//	output       nat dstnat       to an address of the node: jump hostports
//	hostports                     (address, protocol, port) in by_address, else (protocol, port)
//	                              in by_port: set the mark, dnat
//	postrouting  nat srcnat       marked, from a pod or loopback: masquerade (the answer must
//	                              come back through the node);
//	                              from masquerade, to neither local nor multicast: masquerade
//
// A firewall's own drop cannot be overruled by another table: see Admit.
package nft
