// Package resourceslice deletes the ResourceSlices of dynamic resource drivers that have disappeared
// from this node. Otherwise the scheduler would place pods here that cannot start. A driver that
// returns publishes its slices again.
//
//	driver is unreachable --Gone--> 30 s --> its ResourceSlices of this node are deleted
//	driver is reachable ----Here--> '-- they are kept
//	the agent starts ------> 30 s --> slices of drivers that have not registered since are deleted
//
// A deletion waits for the link and is retried until it succeeds. No lists are read: each deletion
// is one request with a selector. If no driver ever registers, there is one such request.
//
// A kubelet deletes the slices of all drivers when it starts. Here a restart of the agent keeps
// them, because drivers register again within seconds.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package resourceslice
