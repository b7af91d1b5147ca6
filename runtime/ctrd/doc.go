// Package ctrd is the native implementation of the CRI: images and snapshots by the containerd in
// this process, containers by shims. There is one file per CRI call.
//
//	RunPodSandbox    --> namespace.Pin, Network.Setup            <state>/sandboxes/<id>.json
//	CreateContainer  --> image, rootfs (overlay), ocispec.Make   <state>/containers/<id>/
//	StartContainer   --> shim.Client.Run                         <run>/b/<id>  (the bundle)
//	     event "ended" from the shim --> record --> Events, then the bundle is removed
//
// The state of a container is derived from its times:
//
//	created --StartedAt--> running --FinishedAt--> exited
//
// The persistent state is one small file per sandbox and container, replaced by rename. It is not
// synced to disk when a container is created or started: a power cut ends the container anyway, and
// without its record it is simply created again. An exit is synced: a completed job must not run
// again. This package creates the overlay directories itself. From the snapshotter it needs only a
// view of the image, which all containers of that image share. So neither creating nor removing a
// container costs a bolt transaction.
//
// A tool at the CRI socket has its own sandboxes and containers, and cannot end or change those of
// the agent: see checkOwner.
//
// IDs are derived from identities, (pod UID, attempt) and (pod UID, name, attempt), so a repeated
// request returns the existing object. A container's ID also depends on the boot: if a power cut
// destroyed the record, the same attempt is a new container.
package ctrd
