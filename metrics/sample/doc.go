// Package sample measures the pods of a node once for all who ask: the Summary API, the
// Prometheus pages, the CRI's figures, thresholds, and islet top.
//
//	Summary  /metrics/cadvisor  /metrics/resource  islet top
//	      \        |                  |            /
//	       Sampler.Now: at most one reading in MaxAge, by one goroutine
//	                        |
//	walk: /  kubepods  its classes  pods  containers  and other cgroups asked for
//	                        |
//	    cgroup.Recent (shared with the CRI)   process (network, open files)
//
// Nothing is read unless somebody asks, nobody waits for another's question to be asked
// again, and nothing but the counters that rates are made from is kept after a while. A
// cgroup, a process or a file that goes while it is read is no error: it is left out, or
// what could be read of it is given.
//
// Pods and containers are known here by their cgroups only. Who they are, the asker says.
package sample
