// Package sample measures the pods of a node once for all callers. The callers are the Summary API, the
// pages for Prometheus, the CRI's figures, eviction thresholds, and islet top.
//
//	Summary  /metrics/cadvisor  /metrics/resource  islet top
//	      \        |                  |            /
//	       Sampler.Now: at most one reading in MaxAge, by one goroutine
//	                        |
//	walk: /  kubepods  its classes  pods  containers  and other configured cgroups
//	                        |
//	    cgroup.Recent (shared with the CRI)   process (network, open files)
//
// Nothing is read without a call. A call that arrives during a reading waits for it and shares its result. A sample is
// released some time after its last use. Only the counters that the next rates are computed from are kept. It is no
// error if a cgroup, process or file disappears while it is read. It is omitted, or it has the figures that could be
// read.
//
// This package knows pods and containers only by their cgroups. The caller adds their names.
package sample
