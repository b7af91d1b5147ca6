// Package tunnel serves SPDY in a WebSocket. The binary messages of the WebSocket, one after
// another, contain the bytes of a SPDY connection. kubectl and crictl have used this since 1.30 to
// forward ports through proxies without SPDY support (KEP-4006).
//
//	client --WebSocket--> Serve --SPDY--> the handler of port-forward by SPDY
package tunnel
