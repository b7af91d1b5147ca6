// Package volume builds what gives pods the volumes of their claims, and connects it.
//
//	agent/plugin/plugins --CSI drivers--> agent/volume/csi --Install--> edge/csinode --> CSINode, Node
//	                                  ^  '--Retry--> workers
//	agent/volume/podvolumes ------------> agent/volume/storage --InUse--> volumesInUse of the Node
//	                                  ^
//	                       edge/object, agent/volume/provision
//
// It has no state of its own.
package volume
