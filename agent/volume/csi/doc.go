// Package csi mounts volumes by CSI drivers: programs, mostly pods of this node, that
// register with agent/plugin/plugins and speak the Container Storage Interface over a socket.
// It is a Driver of agent/volume/storage, which writes down each step before it is taken.
//
//	plugins --Register--> Drivers --NodeGetInfo, NodeGetCapabilities--> driver's socket
//	                         |  '--node ID, topology, limit--> Nodes (edge/csinode)
//	                         '--Retry--> pods that waited for the driver
//	storage --Attached----> VolumeAttachment, made and changed by the attach-detach
//	   |                    controller and the driver's external-attacher
//	   |----Stage---------> NodeStageVolume   plugins/kubernetes.io/csi/DRIVER/SHA/globalmount
//	   '----Publish-------> NodePublishVolume pods/UID/volumes/kubernetes.io~csi/PV/mount
//
// Paths and the files vol_data.json are a kubelet's, so that a node may go from one to the
// other, and drivers that look at them find them.
//
// A driver is hostile: it may hang, die, or say what is not so. A call has a time, its
// answer a size; what it says that it mounted must be there, and what it says that it
// unmounted is unmounted here if it is not. It is asked by one goroutine for each volume,
// which agent/volume/storage keeps from holding up others. While a driver is not registered,
// which after a reboot is until its pod runs, pods that need it wait and say so; those
// that run are not touched.
//
// https://github.com/container-storage-interface/spec/blob/master/spec.md
// https://kubernetes-csi.github.io/docs/
package csi
