// Package remotedialer is the node's side of a tunnel of k3s: the server asks the node for TCP connections, and all of them share one
// WebSocket that the node has opened. The protocol is the same as in github.com/rancher/remotedialer.
//
//	API server --> k3s server --WebSocket--> Session --Dial--> the node's own port 10250
//	                             Connect, Data, Pause, Resume, Error
//
// A message is a binary message of the WebSocket: the number of the message, the number of the connection and the kind, each as a signed
// varint; for Connect and Data an unused varint; then the content. The server numbers the connections.
//
// # Limits
//
// The server may be hostile. It can only reach what Dial allows. A Budget limits the connections, and the bytes that wait for a slow
// receiver on the node, of all sessions together. A connection with many waiting bytes is paused, and is closed if the server does not stop
// sending. A message has a maximum size and is never held as a whole. A session ends if the server is silent, or does not read.
package remotedialer
