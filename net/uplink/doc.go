// Package uplink tells when the machine's way out changes: a cable is plugged in, a
// modem has dialled, a route is new or gone.
//
//	kernel --netlink: links, routes--> Run --unless it is about pods--> Changed
//
// Pods come and go with interfaces and routes of their own, which lead nowhere else:
// those of the pods' bridge and of the veths that hang on any bridge say nothing.
package uplink
