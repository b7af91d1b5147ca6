// Package usage assigns measured figures to pods and containers.
//
//	sample.Sampler (cgroups)   runtime (labels, IDs, writable layers)   pods (status, volumes)
//	             \                     |                                 /
//	              join --> Summary   (/stats/summary, islet top, /metrics/resource)
//	                   --> Subjects  (/metrics/cadvisor)
//
// If the cgroup of a container is not visible on this host, for example because the container runs in a virtual
// machine, the figures come from the runtime. A measurement is only made when a caller requests it.
// https://kubernetes.io/docs/reference/instrumentation/node-metrics/
package usage
