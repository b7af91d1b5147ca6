// Package device connects all parts that assign devices to containers: the manager of extended resources, device
// plugins, the configured devices of the host, DRA drivers, exclusive CPUs and memory, and the pod resources API.
//
//	plugins, hardware --> manager --> pods      drivers --> dynamic --> pods
//	pinning: exclusive CPUs and memory --> pods
//	manager, dynamic, pinning --> pod resources API, statuses
//	drivers --reachable or not--> edge/resourceslice --> ResourceSlices of this node
package device
