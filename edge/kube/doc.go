// Package kube is the node's client for the API server. It has typed functions for the verbs of the API, such as Get and Watch. They
// support the types that a node uses. They are built on client-go's rest package and need neither clientset nor informers.
//
//	Get[T] List[L] WatchList[T] --> rest.Request --> gate --> connections --> API server
//	                                (protobuf,       |  ^     (one HTTP/2 connection,
//	                                 rate limit,     |  |      replaced when Config.Rest
//	                                 Retry-After)    v  |      returns another
//	                                            BeforeRequest  AfterRequest  *rest.Config)
//	                                                 \  /
//	                                                 link
//
// The client saves bytes on metered links. Objects are encoded as protobuf. A server compresses answers of more
// than 128 KiB. A server of version 1.37 also compresses the answers to WatchList. Answers to changes contain
// the metadata only. All requests share one connection, and its header compression reduces a repeated header
// to a byte. New connections resume the TLS session.
//
// The memory of each answer is estimated before it is decoded, and limited. Many users create pods and Services, so a pod or Service that
// is too large is reduced to its identity (reduce.go). Any other object that is too large is an error. An object whose JSON is longer than
// an answer may be is always an error, so a client that requests JSON does not have this protection. A watch event that is too long ends
// the watch, and the caller lists the objects again.
//
// Three checks detect a dead connection: a request, such as the lease renewal every few seconds, gets no answer; the kernel gets no
// acknowledgement of sent data; an HTTP/2 ping gets no reply. The client sends a ping only after some time without received data, so an
// idle link carries no extra traffic.
package kube
