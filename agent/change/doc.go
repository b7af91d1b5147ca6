// Package change is the district of how a node becomes another one: it tries what it is sent,
// and keeps it only if the node is as well as before.
//
//	configure  takes a configuration that is sent
//	trial      how it comes to be kept, or not: pure
//	guard      the process that watches over an agent on trial
//	update     another version of islet
//	selftest   whether a program can run here
package change
