// Package volume creates and connects the parts that provide persistent volumes to pods.
//
//	agent/plugin/plugins --CSI drivers--> agent/volume/csi --Install--> edge/csinode --> CSINode, Node
//	                                  ^  '--Retry--> workers
//	agent/volume/podvolumes ------------> agent/volume/storage --InUse--> volumesInUse of the Node
//	                                  ^
//	                       edge/object, agent/volume/provision
//
// The package has no state of its own.
//
// The packages below it:
//
//	csi         CSI drivers
//	objects     the API objects to which a pod refers
//	podvolumes  volumes that live as long as their pod
//	provision   claims of a node without a cluster
//	storage     persistent volumes
package volume
