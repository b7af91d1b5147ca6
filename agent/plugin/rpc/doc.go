// Package rpc runs gRPC servers at unix sockets below the root directory. Other programs on this machine are the
// clients. Until the first connection, a server only consists of a socket and a goroutine.
//
//	Listen(path) --> Run: the first connection --> gRPC server --> calls
//
// Only root may connect. Connections, concurrent calls, calls per second and bytes are limited.
package rpc
