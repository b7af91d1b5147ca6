// Package daemon runs containerd's storage in this process: content, images, snapshots, leases and
// garbage collection. It is used through containerd's own client.
//
//	runtime/image, runtime/ctrd --> Client() --> metadata (bolt) --> content store, snapshotters
//	                                                  |
//	                                  collector: removes unreferenced data
//
// There is no server, no socket and no plugin graph. This package connects the few necessary parts
// itself. containerd manages no tasks, which are run by package shim, so a container needs no
// record in containerd's bbolt database.
package daemon
