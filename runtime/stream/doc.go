// Package stream implements the CRI's Exec, Attach and PortForward for clients that connect to a
// socket, such as crictl. It returns a URL to which the client connects with SPDY or WebSocket.
//
//	crictl --CRI socket--> Runtime.Exec --> URL with a token, valid once, for a minute
//	crictl --HTTP on loopback, token--> server --> cri.Streamer (the same runtime, in this process)
//
// The agent's own commands use cri.Streamer directly. So the server starts to listen only when the
// first URL is requested.
package stream
