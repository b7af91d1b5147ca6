// Package frames bounds the frames by which a client controls a SPDY session.
//
//	connection --frame--> Bound: whole, short, and small once it is decoded --> SPDY library
//	                        |
//	                        '--> an error, which ends the session
//
// The library decodes what comes, and its own bounds are a thousand headers of a megabyte each.
package frames
