// Package csinode reports the CSI drivers of this node to the cluster. The CSINode object contains the volume limits for the scheduler
// and the topology keys for provisioners. The Node gets the topology labels and an annotation with the node IDs.
//
//	driver registers ---Install---> changes --when the link is up--> CSINode, Node
//	driver disappears --Uninstall-->   '-- failed writes are retried
//
// The registration of a driver does not wait for the report. After a reboot without a network, pods therefore get their volumes. No request
// is sent before the first driver has registered. A CSINode of an earlier Node with the same name is replaced. See
// https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/csi-node-v1/.
package csinode
