// Package kubelet is the district of the kubelet's HTTP API and of the status at the local socket.
//
//	ports     the TCP ports, and who may use them
//	access    authentication and authorization
//	server    the paths: pods, logs, exec, figures, and the local socket's
//	logs      reads the log of a container across its rotations
//	describe  what islet status and islet describe show of the whole node
//	health    whether the node does its work
//	page      the status page
package kubelet
