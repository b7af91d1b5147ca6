// Package streamtest contains clients for tests of servers of exec, attach and port-forward. There
// is a client for each protocol, and connections that are slow, pause or break.
//
//	Way (client and protocol version) --> Link (slow, stops, closes, vanishes) --> server
package streamtest
