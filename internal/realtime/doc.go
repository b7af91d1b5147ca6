// Package realtime interprets the annotations by which a pod requests real-time scheduling, I/O priority, locked memory and
// isolated CPUs for its containers. It decides whether the node allows the request. It is pure except for ReadKernel.
//
//	annotations of a pod --Parse--> Settings by container --+
//	EdgeConfiguration, Kernel, other pods ------------------+--Check--> nil, or a Refusal
//	Settings --Annotate--> annotations of the container's configuration --Read--> Settings --> OCI specification
//
// A request that cannot be fulfilled exactly is an error, so that no pod runs without the guarantees that it needs.
package realtime
