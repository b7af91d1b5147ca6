// Package dra implements dynamic resource allocation on the node: drivers prepare the
// ResourceClaims of a pod, which the scheduler has allocated, before a container uses them.
//
//	driver's socket below <root-dir>/plugins_registry --> Drivers
//	pod --Prepare--> ResourceClaim --> row in the store --NodePrepareResources--> driver --> CDI devices
//	container --Container--> CDI devices of its claims and requests
//	the pod has ended or is deleted: --Ended, Release--> NodeUnprepareResources --> the row is deleted
//	driver --NodeWatchResources--> health --> status of containers
//	driver reachable or not --> edge/resourceslice
//
// The row of a claim is stored before the driver prepares it and deleted after the driver has
// unprepared it, so an agent that is killed leaves nothing prepared without a row. A pod whose
// claim has a row does not need the API server: after a reboot without a network the driver
// prepares the claim again. As in a kubelet, it also does so once in each run of the agent;
// running containers do not wait for that.
//
// The messages of drivers are limited in size. A driver that hangs delays only the pods of its
// claims.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package dra
