// Package csi mounts volumes with CSI drivers. A driver is a program, usually a pod on this node,
// that registers with agent/plugin/plugins and serves the Container Storage Interface on a socket.
// The package implements agent/volume/storage's Driver; storage records each step before it starts.
//
//	plugins --Register--> Drivers --NodeGetInfo, NodeGetCapabilities--> driver's socket
//	                         |  '--node ID, topology, limit--> Nodes (edge/csinode)
//	                         '--Retry--> pods that waited for the driver
//	storage --Attached----> VolumeAttachment, made and changed by the attach-detach
//	   |                    controller and the driver's external-attacher
//	   |----Stage---------> NodeStageVolume   plugins/kubernetes.io/csi/DRIVER/SHA/globalmount
//	   '----Publish-------> NodePublishVolume pods/UID/volumes/kubernetes.io~csi/PV/mount
//
// Paths and vol_data.json files are the same as a kubelet's. A node can therefore switch between
// islet and a kubelet, and drivers find the files that they read.
//
// A driver is not trusted: it may hang, die, or report false results. Each call has a timeout and
// each response a size limit. After a publish the mount must exist; a mount that is left after an
// unpublish is unmounted here. One goroutine per volume calls the driver, and agent/volume/storage
// keeps it from blocking other volumes. Until a driver has registered, for example after a reboot
// until its pod runs, pods that need it wait with an error in their status; running pods are not
// touched.
//
// https://github.com/container-storage-interface/spec/blob/master/spec.md
// https://kubernetes-csi.github.io/docs/
package csi
