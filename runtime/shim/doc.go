// Package shim is the client of the shims. It also contains the shim program, unpacks it and starts
// it.
//
//	Unpack(dir) --> path of the program
//	Start(path, socket) --> a process that outlives this one
//	Dial(socket) --> Client: run, kill, delete, list, attach; events
package shim
