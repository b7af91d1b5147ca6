// Package portmap opens host ports for pods.
//
//	CRI PortMappings, CNI portMappings --Ports--> []nft.Port
//	Table.Add, Remove, Keep --> memory, a file per pod --one flush--> nftables table
//
// A port is open on every address of the node, including 127.0.0.1, or only on HostIP. Other hosts,
// the node itself and all pods, including the pod that serves it, can connect to it.
//
// If another program removed the table while the agent was down, it is restored from the files. The files need no
// fsync, because no pod survives a power loss.
package portmap
