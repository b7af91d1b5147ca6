// Package soak lets a node of a real cluster work for hours, and looks whether anything of
// it grows. It runs only when asked for: make soak SOAK=20m.
//
//	rounds, until the time is over          after each: the same ten pods, nothing else
//	  pods come, crash, are resized, go        |
//	  the link is cut meanwhile                +--> Sample: memory, descriptors, goroutines,
//	  a pod fills its volume, and is evicted   |     cgroups, mounts, links, files, bytes written
//	  the disk is full for a while             |
//	  kill -9 and restart of the agent ...     v
//	  ... between a sixth and a half        samples.csv, soak.svg     Growth
//
// In the second half one agent runs all the time: what it keeps of each round adds up. What an
// end of an agent leaves on the node adds up too, and is compared with the first sixth, in which
// none was ended.
package soak
