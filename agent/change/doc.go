// Package change contains the packages for changes to a node: they try a configuration or version that is sent to the
// node, and keep it only if the node is as healthy as before.
//
//	configure  accepts a configuration that is sent to the node
//	trial      decides whether the node keeps it; its only I/O is its record file
//	guard      the process that supervises an agent on trial
//	bundle     runs the pods of a signed bundle, and returns to the previous bundle if they fail
//	update     installs another version of islet
//	selfcheck  reports whether a program can run on this machine
package change
