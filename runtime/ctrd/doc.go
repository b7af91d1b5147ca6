// Package ctrd is the native implementation of the CRI: images and snapshots by
// the containerd in this process, containers by shims. One verb per file.
//
//	RunPodSandbox    --> namespace.Pin, Network.Setup            <state>/sandboxes/<id>.json
//	CreateContainer  --> image, rootfs (overlay), ocispec.Make   <state>/containers/<id>/
//	StartContainer   --> shim.Client.Run                         <run>/b/<id>  (the bundle)
//	     event "ended" from the shim --> record --> Events, then the bundle goes
//
// The state of a container is derived from its times:
//
//	created --StartedAt--> running --FinishedAt--> exited
//
// What must outlive this process is one small file per sandbox and container,
// replaced by rename. It is not synced to disk when a container is created or
// started: after a power cut the container is gone either way, and a record that
// is gone with it is a container that never was. An exit is synced: a job that is
// done must not run again. Overlay directories are made here and not by the
// snapshotter, of which a container needs no more than a view of its image, shared
// by all containers of it: so neither creating nor removing one costs a
// transaction in bolt.
//
// What a tool at the CRI socket makes is its own, and what the agent makes no tool can
// end or change: see guard.
//
// IDs are made from identities, (pod UID, attempt) and (pod UID, name, attempt), so
// doing something twice is success. A container's is of this boot, too: where a power cut
// took the record, the same attempt is another container.
package ctrd
