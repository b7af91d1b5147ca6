// Package daemon opens containerd's storage in this process: content, images, snapshots, leases and
// garbage collection. It returns containerd's client for the storage.
//
//	runtime/image, runtime/ctrd --> Client() --> metadata (bolt) --> content store, snapshotters
//	                                                  |
//	                                  collector: removes unreferenced data
//
// The databases are files that bbolt maps. A damaged page would end the process, so checkBolt reads them first. If one is damaged, both
// and the layers are renamed (replace_storage.go), and the storage begins empty. Running containers keep their layers.
//
// There is no server, no socket and no plugin graph. Containers run in the shims of package shim,
// not as containerd's tasks, and have no records in containerd's database.
package daemon
