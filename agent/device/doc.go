// Package device connects all parts that assign devices to containers: the manager of extended resources, device
// plugins, the configured devices of the host, DRA drivers, exclusive CPUs and memory, and the pod resources API.
//
//	plugins, hardware --> manager --> pods      drivers --> dynamic --> pods
//	pinning: exclusive CPUs and memory --> pods
//	manager, dynamic, pinning --> pod resources API, statuses
//	drivers --reachable or not--> edge/resourceslice --> ResourceSlices of this node
//
// The packages below it:
//
//	counts         the metrics of device plugins and DRA drivers
//	devicemanager  allocates extended resources
//	deviceplugin   serves device plugins
//	hardware       devices of the host that the configuration names
//	dra            dynamic resource allocation
//	pinning        exclusive CPUs and memory of containers
//	cpumanager     the policy static of the CPU manager
//	memorymanager  the policy Static of the memory manager
//	topology       merges the hints of the three managers
//	podresources   the pod resources API
package device
