// Package shim is the agent's side of the shims. It contains the embedded shim program, starts it,
// and is its client.
//
//	Unpack(dir) --> path of the program
//	Start(path, socket) --> a process that outlives this one
//	Dial(socket) --> Client: run, kill, delete, list, attach; events
package shim
