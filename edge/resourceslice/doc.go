// Package resourceslice deletes the ResourceSlices of this node whose driver for dynamic resource allocation has disappeared. Otherwise the
// scheduler would assign pods to this node although they cannot start here. When a driver registers again, it publishes its slices again.
//
//	driver is unreachable --DriverGone--> 30 s --> its ResourceSlices of this node are deleted
//	driver is reachable ----DriverConnected--> '-- they are kept
//	the agent starts ------> 30 s --> slices of drivers that have not registered since are deleted
//
// A deletion waits for the link and is retried until it succeeds. The package never lists slices. It deletes them with one request that
// contains a selector. On a node without drivers for dynamic resource allocation, this is the only request of the package.
//
// A kubelet deletes the slices of all drivers when it starts. islet keeps them over a restart of the agent, because drivers register
// again within seconds. See https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/.
package resourceslice
