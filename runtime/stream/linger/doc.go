// Package linger closes connections without losing data that the peer has not received yet.
//
//	Close: close the write side --> discard input until the peer closes the connection --> close
//
// If a connection is closed while it has unread input, the kernel resets the connection and
// discards unsent data. A slow reader would lose the end of its data.
package linger
