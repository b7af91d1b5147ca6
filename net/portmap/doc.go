// Package portmap opens ports of the node for pods.
//
//	CRI PortMappings, CNI portMappings --Ports--> []nft.Port
//	Table.Add, Remove, Keep --> memory, a file per pod --one flush--> nftables table
//
// A port is open on every address of the node (or on HostIP alone): for other
// hosts, for the node itself, also at 127.0.0.1, and for pods, the one that
// serves it included.
//
// The files let the table be made anew after someone removed it while the agent
// was down. They need no fsync: after a power loss there is no such pod.
package portmap
