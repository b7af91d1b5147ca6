// Package engine opens the container runtime that the configuration names: containerd, the
// image store and the built-in network in this process, or another runtime behind its CRI
// socket.
//
//	Open --runtime changed: end the node's pods in the old one--> native, or remote
//	     --> Runtime, Images (counted) --> workers, server, CRI socket
//	     --> Network --> node, status
//	Run: native: import image archives, clean up after interrupted pulls
//	     remote: poll the runtime's status
package engine
