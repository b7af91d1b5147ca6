// Package storage gives pods volumes that are more than a directory of the pod: those
// of PersistentVolumeClaims, generic ephemeral volumes, and inline volumes of NFS,
// iSCSI and CSI. It is one Kind of agent/volume/podvolumes; each way to mount is a Driver.
//
//	pod's volume --Resolve: claim, PersistentVolume--> Volume
//	Volume --> Keeper --attach, stage, publish--> Driver
//	             |   <--unpublish, unstage--
//	             v
//	           Ledger (edge/store): written before a driver is asked, removed after it has undone
//
// The steps of a volume, each of which may be asked for again and then is success:
//
//	Attach    wait until the volume is attached to this node (VolumeAttachment)
//	Stage     mount it once for the node, below plugins/
//	Publish   mount it for one pod, below pods/UID/volumes/
//	Unpublish, Unstage   in reverse, when no pod of this node uses it
//
// Rules:
//
//   - The ledger has a row before anything is mounted and until nothing is. So what is to
//     be taken down is known without the pod, the claim and the API server, after kill -9
//     and after a reboot, and what is not in the ledger is nobody's.
//   - Each volume has one lock of its own; a driver that hangs holds up the pods that use
//     its volume and nobody else: neither Keeper's other methods nor a restart of the agent
//     wait for it. A call that is given up goes on in its goroutine, and the next call for
//     the same volume waits for it first.
//   - Data is never removed: a driver unmounts, and removes directories that are empty
//     (runtime/mounts).
//   - A volume is unpublished only after nothing of the pod runs (hook Ended, Release).
//
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/
package storage
