// Package daemon is containerd's storage in this process: content, images,
// snapshots, leases and garbage collection, behind containerd's own client.
//
//	runtime/image, runtime/ctrd --> Client() --> metadata (bolt) --> content store, snapshotters
//	                                                  |
//	                                  collector: what nothing refers to any more
//
// There is no server, no socket and no plugin graph: the few parts are put
// together here by hand. Tasks are not containerd's, see package shim: a
// container costs no record in bolt.
package daemon
