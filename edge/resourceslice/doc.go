// Package resourceslice takes away what drivers of dynamic resources said that this node
// has (ResourceSlices), when they are gone: else the scheduler would send pods here that
// nobody can start. A driver says it anew when it is back.
//
//	driver cannot be reached --Gone--> 30 s --> its ResourceSlices of this node are deleted
//	driver can be reached ----Here--> '--they stay
//	the agent starts --> 30 s --> those of drivers that have not come since
//
// Deleting waits for the link and is tried until it succeeds. Nothing is listed: what is
// to go is a selector of one request, and where no driver ever came that is the only one.
//
// A kubelet deletes the slices of all drivers as it starts; here a restart of the agent
// changes nothing, as drivers come back within seconds.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package resourceslice
