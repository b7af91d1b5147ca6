// Package tunnel serves SPDY in a WebSocket whose binary messages, concatenated, are the bytes of a
// SPDY connection. kubectl and crictl forward ports this way since 1.30 through proxies without
// SPDY support (KEP-4006).
//
//	client --WebSocket--> Serve --SPDY--> the handler of port-forward by SPDY
package tunnel
