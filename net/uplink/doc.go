// Package uplink signals when the machine's connection to the network may have changed: a cable was
// plugged in, a modem has dialled, a route was added or removed.
//
//	kernel --netlink: links, routes--> Run --unless it is about pods--> Changed
//
// The interfaces and routes of pods are not relevant. Run ignores messages about the pods' bridge
// and about veths that are ports of any bridge.
package uplink
