// Package soak runs a node of a real cluster for hours and checks that its resource usage does not
// grow. Its test runs only with make soak SOAK=20m.
//
//	rounds, until the time is over          after each round, with the same ten pods:
//	  pods start, crash, are resized, end      |
//	  the link is cut meanwhile                +--> Sample: memory, descriptors, goroutines,
//	  a pod fills its volume, and is evicted   |     cgroups, mounts, links, files, bytes written
//	  the disk is full for a while             |
//	  kill -9 and restart of the agent,        v
//	  in the 2nd and 3rd sixth of the time  samples.csv, soak.svg     Growth
//
// In the second half of the time, one agent runs without a restart, so that the leaks of all rounds
// add up. The leftovers of ended agents on the node add up too. For these leftovers, the last
// samples are compared with the samples of the first sixth of the time, in which no agent was
// ended.
package soak
