// Package device joins all by which containers get devices: the manager that knows who has
// which, device plugins, drivers of dynamic resources, the devices of the host that the
// configuration gives, and the API that tells of them.
//
//	plugins, hardware --> manager --> pods      drivers --> dynamic --> pods
//	pinning: CPUs and memory of their own --> pods
//	manager, dynamic, pinning --> pod resources API, statuses
//	drivers --reachable or not--> edge/resourceslice --> ResourceSlices of this node
package device
