// Package ipam gives sandboxes addresses and keeps them durably.
//
//	Setup --> Allocator.Allocate(owner) --next free--> Store.AddLease (durable) --> addresses
//	Teardown --> Allocator.Release(owner) --> Store.ReleaseLeases
//
// The store is read once, then mirrored in memory: an allocation costs one
// commit and no read. Addresses are handed out in order and round again, so that
// one that was just released is the last to be used anew: connections and caches
// that still name the old pod do not reach the next one.
package ipam
