// Package uplink signals that the machine's connection to the network may have changed, for example because a cable was plugged in, a
// modem has dialled, or a route was added or removed.
//
//	kernel --netlink: links, routes----> Run --unless it is about pods--> Changed, Moved
//	kernel --netlink: addresses-------'      '-----------------------------------> Moved
//
// Changes of the pods' interfaces and routes do not matter. Run therefore ignores messages about the pods' bridge, and about veths that are
// ports of a bridge.
package uplink
