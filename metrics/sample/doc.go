// Package sample measures the pods of a node once for all callers. The callers are the Summary API, the
// pages for Prometheus, the CRI's figures, eviction thresholds, and islet top.
//
//	Summary  /metrics/cadvisor  /metrics/resource  islet top
//	      \        |                  |            /
//	       Sampler.Now: at most one reading in MaxAge, by one goroutine
//	                        |
//	walk: /  kubepods  its classes  pods  containers  and other configured cgroups
//	                        |
//	    cgroup.CachedReader (shared with the CRI)   process (network, open files)
//
// The package reads files only during a call. If a reading is in progress, a call waits for that reading and shares its result. A sample is
// released some time after its last use. After that, the package keeps only the counters from which the next rates are computed. A cgroup,
// process or file may disappear while it is read. This is not an error: the sample omits it, or contains the figures that could be read.
//
// This package identifies pods and containers by their cgroups. The caller adds their names.
package sample
