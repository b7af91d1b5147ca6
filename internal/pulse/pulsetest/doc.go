// Package pulsetest cuts TCP connections, for tests of code that waits for a peer.
package pulsetest
