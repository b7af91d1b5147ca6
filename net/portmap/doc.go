// Package portmap opens host ports for pods.
//
//	CRI PortMappings, CNI portMappings --Ports--> []nft.Port
//	Table.Add, Remove, Keep --> memory, a file per pod --one flush--> nftables table
//
// A port is open on every address of the node, or only on HostIP: for other hosts, for the node
// itself, also at 127.0.0.1, and for pods, including the pod that serves it.
//
// From the files, the table is restored if somebody removed it while the agent was down. They need
// no fsync, because no pod survives a power loss.
package portmap
