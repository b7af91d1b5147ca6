// Package streamtest reads streams as every client does, and badly: for tests of what serves exec,
// attach and port-forward.
//
//	Way (a client, a version of a protocol) --> Link (slow, stops, closes, vanishes) --> server
package streamtest
