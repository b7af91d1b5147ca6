// Package change contains the packages for changes to a node: they try a configuration or version that is sent to the
// node, and keep it only if the node is as healthy as before.
//
//	configure  accepts a configuration that is sent to the node
//	trial      decides whether it is kept; does no I/O but for its file
//	guard      the process that supervises an agent on trial
//	bundle     runs a signed bundle, and returns to the previous one if its pods fail
//	update     installs another version of islet
//	selfcheck  reports whether a program can run on this machine
package change
