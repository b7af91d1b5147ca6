// Package linger closes a connection in such a way that the peer receives everything that was
// written.
//
//	Close: the write side is closed --> input is discarded --> the peer closes the connection --> closed
//
// If a connection is closed while received data is unread, the kernel resets it and discards data
// that the peer has not received yet. So a slow reader would lose the end of the data.
package linger
