// Package resourceslice deletes the ResourceSlices of drivers for dynamic resource allocation that have disappeared from this node.
// Otherwise the scheduler would assign pods to this node that cannot start. When a driver registers again, it publishes its slices again.
//
//	driver is unreachable --DriverGone--> 30 s --> its ResourceSlices of this node are deleted
//	driver is reachable ----DriverConnected--> '-- they are kept
//	the agent starts ------> 30 s --> slices of drivers that have not registered since are deleted
//
// A deletion waits for the link and is retried until it succeeds. The package never lists slices. It deletes them with one request that
// contains a selector. On a node without such drivers, this is the only request.
//
// A kubelet deletes the slices of all drivers when it starts. islet keeps them over a restart of the agent, because drivers register
// again within seconds. See https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/.
package resourceslice
