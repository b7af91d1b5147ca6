// Package door bounds the connections to a port that anybody can connect to, so that a client with
// many connections cannot lock out others.
//
//	net.Listener --Accept--> Listener: a limited number of places --> http.Server
//	                              ^                               |
//	 full: a stranger is closed   |      Admitted, hijacked       v
//	                              '------------------------- known, session
//
// A connection starts as a stranger. It becomes known when a request on it was authenticated and
// authorized, and a session when a handler hijacked it (exec, attach, port-forward). Only strangers
// are closed to make room: if all places are taken, the oldest stranger of the address with the
// most strangers, in the network with the most strangers, is closed. This applies to a stranger in
// any state: in the TLS handshake, in its headers, between requests, or slowly reading an answer. A
// network is a /24 of IPv4, a /64 of IPv6, or 127.0.0.0/8. So all pods of a node count as one
// network, and so do all users of this machine.
//
// Strangers also share a limit for unanswered bytes: the bytes that a stranger has sent since its last answer. The
// server keeps them decoded in memory. Beyond the limit, the network that sent most is selected, and in it the
// stranger that sent most is closed.
//
// An address that has authenticated before counts as a network of its own, and so does the API
// server's address. The first strangers from such an address are not closed.
//
// A blocked write blocks the writer, such as a container. It waits for a slow peer, and fails when
// the connection of a lost peer is closed (see package pulse).
package door
