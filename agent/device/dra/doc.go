// Package dra serves dynamic resources: claims of pods (resource.k8s.io), which the scheduler
// allocated and drivers on this node prepare before a container uses them.
//
//	driver's socket below <root-dir>/plugins_registry --> Drivers
//	pod --Prepare--> ResourceClaim --> row in the store --NodePrepareResources--> driver --> CDI devices
//	container --Container--> CDI devices of its claims and requests
//	the pod is over, or gone: --Ended, Release--> NodeUnprepareResources --> the row goes
//	driver --NodeWatchResources--> health --> status of containers
//	driver can be reached, or not --> edge/resourceslice
//
// A claim is a row from before a driver is asked until the driver took back what it did, so
// nothing is forgotten by an agent that is killed. Who has a row needs no API server: after
// a reboot without a network the driver prepares the claim again. That it does, too, once in
// each run of the agent, as with a kubelet; a container that runs waits for nobody.
//
// What a driver says is bounded, and one that hangs holds up the pods of its claims only.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package dra
