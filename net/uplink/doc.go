// Package uplink signals when the machine's connection to the network may have changed: a cable was
// plugged in, a modem has dialled, a route was added or removed.
//
//	kernel --netlink: links, routes--> Run --unless it is about pods--> Changed
//
// Pods are added and removed with their own interfaces and routes, which are not relevant: messages
// about the pods' bridge and about veths that are ports of any bridge are ignored.
package uplink
