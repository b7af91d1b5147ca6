// Package sample measures the pods of a node once for all callers: the Summary API, the pages for
// Prometheus, the CRI's figures, eviction thresholds, and islet top.
//
//	Summary  /metrics/cadvisor  /metrics/resource  islet top
//	      \        |                  |            /
//	       Sampler.Now: at most one reading in MaxAge, by one goroutine
//	                        |
//	walk: /  kubepods  its classes  pods  containers  and other configured cgroups
//	                        |
//	    cgroup.Recent (shared with the CRI)   process (network, open files)
//
// Nothing is read without a call. A call waits for a running reading and shares its result. After a
// while, only the counters for computing rates are kept. A cgroup, process or file that disappears
// while it is read is no error: it is left out, or has the figures that could be read.
//
// This package knows pods and containers only by their cgroups. The caller adds their names.
package sample
