// Package engine opens the container runtime. This is either containerd in this process, with its image store and the
// built-in network, or a remote runtime. A remote runtime is another process, such as CRI-O, at the CRI socket that
// the configuration names.
//
//	Open --runtime changed: end the node's pods in the old one--> native, or remote
//	     --> Runtime, Images (counted) --> workers, server, CRI socket
//	     --> Network --> node, status
//	Run: native: import image archives, clean up after interrupted pulls
//	     remote: poll the runtime's status
//
// The packages below it:
//
//	credentials  the registry credentials of a pod
//	operations   the metrics of calls to the container runtime
//	pulls        pulls images and decides who may use an image without a pull
//	podlogs      limits the logs of each pod, and rotates the logs of a remote runtime
package engine
