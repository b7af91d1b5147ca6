// Package rpc runs gRPC servers at unix sockets below the root directory, for other programs on this machine. Until
// the first connection, a server only consists of a socket and a goroutine.
//
//	Listen(path) --> Run: the first connection --> gRPC server --> calls
//
// Only root may connect. Connections, concurrent calls, calls per second and bytes are limited.
package rpc
