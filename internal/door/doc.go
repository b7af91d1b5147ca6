// Package door bounds the connections to a port that anybody may connect to, so that whoever
// holds many of them locks nobody else out.
//
//	net.Listener --Accept--> Listener: one room of places --> http.Server
//	                              ^                               |
//	   full: a stranger gives way |      Admitted, hijacked       v
//	                              '------------------------- known, session
//
// A connection enters as a stranger. It becomes known when a request on it was authenticated and
// allowed, and a session when a handler took it over (exec, attach, port-forward). Only strangers
// give way: when there is no place left, the oldest one of the address with the most of them, of the
// network with the most of them, is closed. That holds in every state of a stranger: in the TLS
// handshake, in its headers, between requests, or while it reads an answer slowly. A network is a
// /24 of IPv4 or a /64 of IPv6, and all of 127.0.0.0/8: the pods of a node are one network, and so
// are the users of this machine.
//
// Strangers share one bound of bytes, too: of what they have sent since their last answer, as a
// server holds that decoded. Beyond it the one that has sent most gives way, of the network that has.
//
// An address that was let in before, and the API server's, is a network of its own, and its first
// strangers do not give way.
//
// A write to a connection may hold up whoever writes, such as a container. It waits for a peer that is
// slow, and ends with the connection of a peer that has vanished (see package pulse).
package door
