// Package frames limits the control frames of a client's SPDY session, and records which streams
// the client resets.
//
//	connection --frame--> LimitControlFrames: complete, short, and small once decoded --> SPDY library
//	                        |
//	                        '--> an error, which ends the session
//
// The limits of the SPDY library itself are too high: it accepts a thousand headers of a megabyte
// each.
package frames
