// Package tunnel serves SPDY in a WebSocket, whose binary messages are, one after the
// other, the bytes of a SPDY connection. So kubectl and crictl forward ports since 1.30
// where a proxy knows no SPDY (KEP-4006).
//
//	client --WebSocket--> Serve --SPDY--> what serves port-forward by SPDY
package tunnel
