// Package csinode tells the cluster which CSI drivers this node has: in the CSINode object,
// by which the scheduler counts volumes and the provisioners know the topology, and by
// labels and an annotation of the Node.
//
//	driver registers --Install---> changes --when there is a link--> CSINode, Node
//	driver goes -----Uninstall-->     '--those that the server did not take yet stay
//
// Registering a driver waits for none of it, so that after a reboot without network pods
// get their volumes. While no driver has registered nothing is asked or written. A CSINode
// of an earlier Node of this name is made anew.
// https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/csi-node-v1/
package csinode
