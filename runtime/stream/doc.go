// Package stream implements the CRI's Exec, Attach and PortForward for clients of the CRI socket,
// such as crictl. It returns a URL, to which the client connects with SPDY or WebSocket.
//
//	crictl --CRI socket--> Runtime.Exec --> URL with a token, valid once, for a minute
//	crictl --HTTP on loopback, token--> server --> cri.Streamer (the same runtime, in this process)
//
// The server starts to listen when the first URL is requested. The agent itself uses cri.Streamer
// directly and needs no server.
//
// The packages below it:
//
//	frames  limits the control frames of SPDY
//	linger  closes a connection without losing data
//	tunnel  SPDY over WebSocket
package stream
