// Package door limits the connections to a public port, so that a client with many connections
// cannot lock out others.
//
//	net.Listener --Accept--> Listener: a limited number of places --> http.Server
//	                              ^                               |
//	 full: one without            |   ReportAuthenticated,        v
//	                              authentication is closed '--- hijacked --- authenticated, session
//
// A new connection is unauthenticated. It becomes authenticated when a request on it was
// authenticated and authorized. It becomes a session when a handler hijacks it (exec, attach,
// port-forward). If all places are taken, an unauthenticated connection is closed to make room;
// other connections never are. The Listener selects the network with the most unauthenticated
// connections, in it the address with the most, and of these the oldest one. The connection may be
// in the TLS handshake, in the headers of a request, between requests, or in a response that its
// client reads slowly. A network is a /24 of IPv4, a /64 of IPv6, or 127.0.0.0/8. So all pods of a
// node count as one network, and so do all users of this machine.
//
// Unauthenticated connections also share a limit for unanswered bytes, that is, the bytes that a client has sent
// since the last response. The server has decoded them and keeps them in memory. Beyond the limit, the Listener
// selects the network that sent the most, and closes the unauthenticated connection in it that sent the most.
//
// An address with an earlier authenticated request counts as a network of its own, and so does the
// API server's address. Such an address has reserved places: its first unauthenticated connections
// are not closed.
//
// A write to a peer that does not read blocks the writer, such as a container. If the peer is slow,
// the write waits. If the peer is lost (see package pulse), the connection is closed and the write
// fails.
package door
