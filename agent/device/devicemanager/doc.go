// Package devicemanager gives containers the devices that they ask for as extended resources: who
// has which, so that a container gets the same ones after its restart, the agent's and the
// machine's, with or without a network. Where devices come from is a Provider's affair:
// device plugins are one kind, the node's built-in devices another.
//
//	Provider --Connect(resource)--> Link --Devices(list)--> Manager --> capacity, allocatable of the Node
//	pod --Admit--> pick IDs --Allocate--> Provider --> rows in the store --Container--> configuration
//	before each start of a container: --Start--> Provider
//	the pod is over, or gone: --Ended, Release--> the rows go
//
// What a container got is a row that is written before the container is made. A device that
// is unhealthy, or whose provider is gone, is not given to others while a container has it;
// the container runs on, and starts again once the device is back.
//
// Without a provider there is no state, no row and no goroutine.
// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
package devicemanager
