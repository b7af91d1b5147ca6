// Package devicemanager allocates devices to the containers that request them as extended
// resources. It stores the allocations, so a container keeps its devices when it, the agent or
// the machine restarts, with or without a network. Providers list the devices: device plugins,
// and the configured devices of the host.
//
//	Provider --Connect(resource)--> Link --Devices(list)--> Manager --> capacity, allocatable of the Node
//	pod --Admit--> pick IDs --Allocate--> Provider --> rows in the store --Container--> configuration
//	before each start of a container: --Start--> Provider
//	the pod has ended or is deleted: --Ended, Release--> the rows are deleted
//
// The row of an allocation is stored before the container is created. If a device becomes
// unhealthy or its provider disconnects, it stays allocated and its container keeps running.
// The container can only restart once the device is back.
//
// Without a provider there is no state, no row and no goroutine.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
package devicemanager
