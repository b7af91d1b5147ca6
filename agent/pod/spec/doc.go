// Package spec is the parent of the packages that interpret the spec of a pod for this node.
//
//	admit      whether a pod may run here
//	allocate   whether a pod that runs may have other CPU and memory
//	translate  the CRI's configurations
//	userns     a range of user IDs for a pod with hostUsers: false
//	hostport   host ports at which programs of the host listen
package spec
