// Package usage assigns measurements to pods and containers.
//
//	sample.Sampler (cgroups)   runtime (labels, IDs, writable layers)   pods (status, volumes)
//	             \                     |                                 /
//	              join --> Summary   (/stats/summary, islet top, /metrics/resource)
//	                   --> Subjects  (/metrics/cadvisor)
//
// A container whose cgroup is not visible on this host, such as one in a virtual machine, gets the runtime's figures.
// A measurement is only made when a caller requests it.
// https://kubernetes.io/docs/reference/instrumentation/node-metrics/
package usage
