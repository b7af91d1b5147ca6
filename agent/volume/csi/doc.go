// Package csi mounts volumes with CSI drivers. A driver is a program, usually in a pod on this node, that registers
// with agent/plugin/plugins and serves the Container Storage Interface on a socket. The package implements
// agent/volume/storage's Driver, which records each step before it starts.
//
//	plugins --Register--> Drivers --NodeGetInfo, NodeGetCapabilities--> driver's socket
//	                         |  '--node ID, topology, limit--> Nodes (edge/csinode)
//	                         '--Retry--> pods that waited for the driver
//	storage --WaitAttached----> VolumeAttachment, made and changed by the attach-detach
//	   |                    controller and the driver's external-attacher
//	   |----Stage---------> NodeStageVolume   plugins/kubernetes.io/csi/DRIVER/SHA/globalmount
//	   '----Publish-------> NodePublishVolume pods/UID/volumes/kubernetes.io~csi/PV/mount
//
// Paths and vol_data.json files are the same as in a kubelet. So a node can switch between islet and a
// kubelet, and drivers that read these files find them.
//
// A driver is not trusted: it may hang, die, or report false results. Each call has a timeout and each
// response a size limit. After a publish call, the package checks that the mount exists. If a mount remains
// after an unpublish call, the package unmounts it. A driver is called in a separate goroutine for each
// volume. agent/volume/storage ensures that this goroutine does not block other volumes. Pods that need a
// driver wait until it has registered. Their status contains an error meanwhile. After a reboot, for example,
// they wait until the driver's pod runs. Pods that are already running are not affected.
//
// https://github.com/container-storage-interface/spec/blob/master/spec.md
// https://kubernetes-csi.github.io/docs/
package csi
