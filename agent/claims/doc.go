// Package claims builds what gives pods the volumes of their claims, and connects it.
//
//	agent/plugins --CSI drivers--> agent/csi --Install--> edge/csinode --> CSINode, Node
//	                                  ^  '--Retry--> workers
//	agent/volume ------------> agent/storage --InUse--> volumesInUse of the Node
//	                                  ^
//	                       edge/object, agent/provision
//
// It has no state of its own.
package claims
