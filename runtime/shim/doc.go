// Package shim is the client of the shims. It also contains the shim program, unpacks it and starts
// it.
//
//	Unpack(dir) --> path of the program
//	Start(path, socket) --> a process that outlives this one
//	Dial(socket) --> Client: run, kill, delete, list, attach; events
//
// The packages below it:
//
//	cmd     the shim program
//	server  the shim: parent of the containers of some pods
//	crilog  writes and rotates the logs of containers
//	wire    the protocol between agent and shim
//	pack    compresses the program for embedding
package shim
