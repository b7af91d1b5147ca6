// Package rpc is for gRPC servers at unix sockets below the root directory, which other
// programs of this machine may look for: until one of them connects, a server is one
// goroutine that waits and a socket.
//
//	Listen(path) --> Run: the first connection --> gRPC server --> calls
//
// Only root may connect. All the same whoever does is bounded: in connections, calls at a
// time and a second, and bytes.
package rpc
