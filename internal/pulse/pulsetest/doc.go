// Package pulsetest cuts the links of connections, for tests of what waits for a peer.
package pulsetest
