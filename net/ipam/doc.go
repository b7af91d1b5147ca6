// Package ipam assigns addresses to sandboxes and stores the leases durably.
//
//	Setup --> Allocator.Allocate(owner) --next free--> Store.AddLease (durable) --> addresses
//	Teardown --> Allocator.Release(owner) --> Store.ReleaseLeases
//
// The store is read once and then mirrored in memory: an allocation costs one commit and no read.
// Addresses are assigned in order, cyclically, so that a released address is reused as late as
// possible: connections and caches that still refer to the old pod do not reach another pod.
package ipam
