// Package streamtest is for tests of servers of exec, attach and port-forward. It has clients of
// every protocol, and connections that are slow, pause or break.
//
//	Way (a client, a version of a protocol) --> Link (slow, stops, closes, vanishes) --> server
package streamtest
