// Package csinode reports the CSI drivers of this node to the cluster: in the CSINode object, which
// has the volume limits for the scheduler and the topology keys for provisioners, and by labels and
// an annotation of the Node.
//
//	driver registers ---Install---> changes --when the link is up--> CSINode, Node
//	driver disappears --Uninstall-->   '-- failed writes are retried
//
// The registration of a driver does not wait for that, so that pods get their volumes after a reboot
// without a network. No request is sent before a driver has registered. The CSINode of an earlier
// Node with this name is replaced.
// https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/csi-node-v1/
package csinode
