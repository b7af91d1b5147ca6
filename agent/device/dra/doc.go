// Package dra implements dynamic resource allocation on the node: drivers prepare a pod's ResourceClaims, which the
// scheduler has allocated, before a container uses their devices.
//
//	driver's socket below <root-dir>/plugins_registry --> Drivers
//	pod --Prepare--> ResourceClaim --> row in the store --NodePrepareResources--> driver --> CDI devices
//	container --Container--> CDI devices of its claims and requests
//	the pod has ended or is deleted: --Ended, Release--> NodeUnprepareResources, once for each driver --> the row is deleted
//	the pod is unknown, its claim has a row: --Sweep--> PodChanged --> Release
//	driver --NodeWatchResources--> health --> status of containers
//	driver reachable or not --> edge/resourceslice
//
// The row of a claim is stored before the driver prepares the claim and deleted after the driver has unprepared it.
// So even if the agent is killed, every prepared claim has a row. A pod whose claim has a row does not need the API
// server: after a reboot without a network the driver prepares the claim again. As in a kubelet, the driver also
// prepares each claim once after each start of the agent. Running containers do not wait for this.
//
// The messages of drivers are limited in size. A driver that hangs delays only the pods of its
// claims, and when a pod has ended only its own claims.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
package dra
