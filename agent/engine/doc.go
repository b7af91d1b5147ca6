// Package engine is what runs the containers: containerd, images and the built-in
// network in this process, or another runtime behind its CRI socket; opened by one
// configuration.
//
//	Open --moved: the old one's pods are ended--> native, or remote
//	     --> Runtime, Images (counted) --> workers, server, CRI socket
//	     --> Network --> node, status
//	Run: image archives are imported, broken pulls cleared up; or the other runtime is
//	     asked how it is
package engine
