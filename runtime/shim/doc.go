// Package shim is the agent's side of the shims: the program that is embedded
// here, starting it, and talking to it.
//
//	Unpack(dir) --> path of the program
//	Start(path, socket) --> a process that outlives this one
//	Dial(socket) --> Client: run, kill, delete, list, attach; events
package shim
