// Package kube is the node's client of the API server. It has typed verbs, built on client-go's rest
// package, for the types that a node uses, and needs neither clientset nor informers.
//
//	Get[T] List[L] WatchList[T] --> rest.Request --> gate --> connections --> API server
//	                                (protobuf,       |  ^     (one HTTP/2 connection,
//	                                 rate limit,     |  |      replaced when Config.Rest
//	                                 Retry-After)    v  |      returns another
//	                                            Before  After  *rest.Config)
//	                                                 \  /
//	                                                 link
//
// The client saves bytes on metered links. Objects are encoded as protobuf. A server compresses answers of more
// than 128 KiB. A server of version 1.37 also compresses the answers to WatchList. Answers to changes contain
// the metadata only. All requests share one connection, and its header compression reduces a repeated header
// to a byte. New connections resume the TLS session.
//
// Three checks detect a dead connection. A request gets no answer, such as the lease renewal every few
// seconds. The kernel gets no acknowledgement of sent data. An HTTP/2 ping gets no reply; a ping is sent
// only after a time without received data. So an idle link carries no extra traffic.
package kube
