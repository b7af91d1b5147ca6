// Package ipam assigns addresses to sandboxes and stores the leases durably.
//
//	Setup --> Allocator.Allocate(owner) --next free--> Store.AddLease (durable) --> addresses
//	Teardown --> Allocator.Release(owner) --> Store.ReleaseLeases
//
// The store is read once and mirrored in memory, so an allocation costs one commit and no read. Addresses are assigned in cyclic order,
// so a released address is reused as late as possible. After an early reuse, connections and caches for the old pod could reach another
// pod.
package ipam
