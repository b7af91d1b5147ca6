// Package storage provides volumes whose data is not in the pod's directory: volumes of PersistentVolumeClaims,
// generic ephemeral volumes, and inline volumes of NFS, iSCSI and CSI. Mounter implements Kind of
// agent/volume/podvolumes. Each type of storage has a Driver.
//
//	pod's volume --Resolve: claim, PersistentVolume--> Volume
//	Volume --> Mounter --attach, stage, publish--> Driver
//	             |    <--unpublish, unstage--
//	             v
//	           Ledger (edge/store): written before a driver is called, removed after it has unmounted
//
// A volume goes through these steps, each of which is idempotent:
//
//	Attach    wait until the volume is attached to this node (VolumeAttachment)
//	Stage     mount it once for the node, below plugins/
//	Publish   mount it for one pod, below pods/UID/volumes/
//	Unpublish, Unstage   in reverse, when no pod of this node uses it
//
// Rules:
//
//   - The ledger contains a row for each mount. The row is written before the mount and deleted after the unmount. So
//     after a kill -9 or a reboot, mounts can be found and removed even without the pod, the claim and the API
//     server. If the ledger is lost with the database, New adds rows for the volumes that the drivers find on the disk.
//   - Each volume has its own lock. A driver that hangs blocks only the pods that use its volume. It blocks neither
//     Mounter's other methods nor a restart of the agent. If a caller stops waiting, its call continues in its
//     goroutine, and the next call for the volume waits for that call.
//   - The wait of a caller is limited, and the context of a driver's call ends with it. Three steps have no limit,
//     because their time depends on the disk: the check and the formatting of a disk, and the change of the group
//     of its files (longStep). The teardown of the pod's volume and the end of the agent cancel the last two.
//   - Each use of a volume by a pod has a lock too, which is acquired before the volume's lock. The group of the
//     files is changed with this lock only, so that other pods can start and end meanwhile.
//   - Data is never deleted: a driver unmounts volumes and removes only empty directories (runtime/mounts).
//   - A volume is unpublished only after all containers of the pod have ended (hook Ended, Release).
//
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/
package storage
