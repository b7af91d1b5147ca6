// Package ctrd is the native implementation of the CRI. The containerd in this process manages
// images and snapshots, and shims run the containers. There is one file for each CRI call.
//
//	RunPodSandbox    --> namespace.Pin, Network.Setup            <state>/sandboxes/<id>.json
//	CreateContainer  --> image, rootfs (overlay), ocispec.NewSpec   <state>/containers/<id>/
//	StartContainer   --> shim.Client.Run                         <run>/b/<id>  (the bundle)
//	     event "ended" from the shim --> record --> Events, then the bundle is removed
//
// The state of a container is derived from its times:
//
//	created --StartedAt--> running --FinishedAt--> exited
//
// The persistent state is one small file for each sandbox and container. It is not synced to disk
// when a container is created or started, because a power cut ends the container anyway and a
// container without a record is created again. An exit is synced, because a job that has completed
// must not run again. This package creates the overlay directories itself. The snapshotter only
// provides a view of the image, which all containers of that image share. So no transaction of
// containerd's database is needed to create or remove a container.
//
// A tool at the CRI socket owns the sandboxes and containers that it creates. It cannot stop or
// change the agent's sandboxes and containers; see checkOwner.
//
// The ID of a sandbox is derived from (pod UID, attempt), and the ID of a container from (pod UID,
// name, attempt). So a repeated request returns the existing object. A container's ID also depends
// on the boot, so the same attempt gets a new container if a power cut destroyed the record.
package ctrd
