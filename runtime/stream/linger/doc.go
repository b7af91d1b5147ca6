// Package linger closes a connection so that its peer gets everything that was written.
//
//	Close: no more is sent --> what the peer still sends is thrown away --> the peer hangs up --> closed
//
// A connection that is closed while something of the peer's is unread is reset by the kernel,
// which throws away what the peer has not taken yet: a slow reader then loses the end.
package linger
