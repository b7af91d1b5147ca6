// Package streamtest helps to test servers of exec, attach and port-forward. It has clients for
// every protocol, and connections that are slow, pause or break.
//
//	Way (a client, a version of a protocol) --> Link (slow, stops, closes, vanishes) --> server
package streamtest
