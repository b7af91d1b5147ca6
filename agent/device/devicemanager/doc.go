// Package devicemanager allocates devices to the containers that request them as extended resources. It stores the
// allocations, so a container keeps its devices across restarts of the container, the agent and the machine, even
// without a network. Providers list the devices: device plugins, and the configured devices of the host.
//
//	Provider --Connect(resource)--> Link --Devices(list)--> Manager --> capacity, allocatable of the Node
//	pod --Admit--> reserve IDs --PreferredDevices, Allocate--> Provider --> rows in the store --Container--> configuration
//	before each start of a container: --Start--> Provider
//	the pod has ended or is deleted: --Ended, Release--> the rows are deleted
//
// The devices of all containers of a pod are reserved before the first call of a provider. A provider may prefer other
// devices that are free. A pod that lacks only devices that are reserved for another pod is not refused, but tries again.
// The row of an allocation is stored before the container is created. A device stays allocated when it becomes
// unhealthy or its provider disconnects, and its container keeps running. If the container ends, it can start again
// only when the device is healthy.
//
// Without a provider there is no state, no row and no goroutine.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
package devicemanager
