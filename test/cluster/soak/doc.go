// Package soak lets a node of a real cluster work for hours, and looks whether anything of
// it grows. It runs only when asked for: make soak SOAK=20m.
//
//	rounds, until the time is over          after each: the same ten pods, nothing else
//	  pods come, crash, are resized, go        |
//	  the link is cut meanwhile                +--> Sample: memory, descriptors, goroutines,
//	  a pod fills its volume, and is evicted   |     cgroups, mounts, links, files, bytes written
//	  kill -9 and restart of the agent ...     v
//	  ... in the first half only          samples.csv, soak.svg     Growth of the second half
//
// In the second half one agent runs all the time: what it keeps of each round adds up.
package soak
