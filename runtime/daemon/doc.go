// Package daemon is containerd's storage in this process: content, images, snapshots, leases and
// garbage collection, behind containerd's own client.
//
//	runtime/image, runtime/ctrd --> Client() --> metadata (bolt) --> content store, snapshotters
//	                                                  |
//	                                  collector: removes unreferenced data
//
// There is no server, no socket and no plugin graph: this package connects the few parts itself.
// containerd has no tasks here, see package shim, so a container costs no record in bolt.
package daemon
