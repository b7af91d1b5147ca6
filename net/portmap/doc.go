// Package portmap opens host ports for pods. It decides which ports are open. Package nft forwards them (net/nft/rules.go).
//
//	CRI PortMappings, CNI portMappings --Ports--> []nft.Port
//	Table.Add, Remove, Keep --> memory, a file per pod --one flush--> nftables table
//
// A port is open on every address of the node, including 127.0.0.1, or only on HostIP. It accepts connections from other hosts, from the
// node and from all pods, including the pod that serves the port.
//
// If another program removes the table while the agent is down, the table is restored from the files. The files are written without fsync,
// because no pod survives a power loss.
package portmap
