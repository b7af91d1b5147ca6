// Package spec is the parent of the packages that interpret the spec of a pod for this node.
//
//	admit      decides whether a pod may run on this node
//	allocate   decides whether a running pod may get other amounts of CPU and memory
//	realtime   reads the annotations for real time
//	translate  converts a pod to the CRI's configurations
//	userns     assigns a range of user IDs to a pod with hostUsers: false
//	portconflict finds host ports on which programs of the host listen
package spec
