// Package usage joins what was measured with who it is: pods and containers by their
// names.
//
//	sample.Sampler (cgroups)   runtime (labels, IDs, writable layers)   pods (status, volumes)
//	             \                     |                                 /
//	              join --> Summary   (/stats/summary, islet top, /metrics/resource)
//	                   --> Subjects  (/metrics/cadvisor)
//
// A container that has no cgroup which this host can see, as one in a virtual machine, has
// the figures that its runtime tells. Nothing is asked or read unless somebody asks here.
// https://kubernetes.io/docs/reference/instrumentation/node-metrics/
package usage
