// Package connlimit limits the connections to a public port, so that a client with many connections
// cannot lock out others.
//
//	net.Listener --Accept--> Listener: a limited number of places --> http.Server
//	                              ^                               |
//	 full: one without            |   ReportAuthenticated,        v
//	                              authentication is closed '--- hijacked --- authenticated, session
//
// A new connection is unauthenticated. The connection becomes authenticated when a request on it
// was authenticated and authorized. It becomes a session when a handler hijacks it (exec, attach,
// port-forward). If all places are taken, an unauthenticated connection is closed to make room.
// Other connections are never closed for this. The Listener selects the network with the most
// unauthenticated connections. In this network, it selects the address with the most
// unauthenticated connections, and closes the oldest connection of that address. The closed
// connection may be in the TLS handshake, in the headers of a request, between requests, or in a
// response that the client reads slowly. A network is a /24 of IPv4, a /64 of IPv6, or 127.0.0.0/8.
// So all pods of a node count as one network. All users of this machine also count as one network.
//
// Unauthenticated connections also share a limit for unanswered bytes, that is, the bytes that a client has sent
// since the last response. The server has decoded these bytes and keeps the result in memory. Beyond the limit, the
// Listener selects the network with the most unanswered bytes. In this network it closes the connection with the most
// unanswered bytes.
//
// The API server's address counts as a network of its own. So does every address that has sent an
// authenticated request before. These addresses have reserved places: their first unauthenticated
// connections are not closed.
//
// A write to a peer that does not read blocks the writer, such as a container. If the peer is slow,
// the write waits. If the peer is lost (see package pulse), the connection is closed and the write
// fails.
package connlimit
