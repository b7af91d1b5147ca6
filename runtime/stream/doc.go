// Package stream answers the CRI's Exec, Attach and PortForward for clients
// that come over a socket, such as crictl: with a URL to which the client
// connects by SPDY or WebSocket.
//
//	crictl --CRI socket--> Runtime.Exec --> URL with a token, good once, for a minute
//	crictl --HTTP on loopback, token--> server --> cri.Streamer (the same runtime, in this process)
//
// The agent's own commands need none of it: they use cri.Streamer directly. So
// the server listens only once a first URL is asked for.
package stream
