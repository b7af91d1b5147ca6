// Package tunnel serves SPDY over WebSocket (KEP-4006). The binary messages of the WebSocket
// contain the bytes of a SPDY connection. kubectl and crictl use it for port-forward, because some
// proxies do not support SPDY.
//
//	client --WebSocket--> Serve --SPDY--> the handler of port-forward by SPDY
package tunnel
