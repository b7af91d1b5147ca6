// Package linger closes a connection so that its peer receives everything that was written.
//
//	Close: the write side is closed --> input is discarded --> the peer closes the connection --> closed
//
// If a connection is closed while received data is unread, the kernel resets it and discards data
// that the peer has not received yet: a slow reader would lose the end.
package linger
