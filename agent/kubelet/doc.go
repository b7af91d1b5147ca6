// Package kubelet contains the packages of the kubelet's HTTP API and of the API at the local socket.
//
//	ports     the TCP ports, and which clients may use them
//	access    authentication and authorization
//	server    the handlers: pods, logs, exec, metrics and the local socket, each in a package of its own
//	containerfiles  copies files from and to a container
//	logs      reads the log of a container, including its rotated files
//	describe  collects the data for islet status and islet describe
//	health    checks whether the node works
//	page      the status page
//	podsapi   the gRPC API for the pods of this node, at its own socket
package kubelet
