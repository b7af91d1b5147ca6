// Package kube is the node's client of the API server: typed verbs over client-go's rest, without
// clientset and informers, for the types that a node uses.
//
//	Get[T] List[L] Watch[T] ... --> rest.Request --> gate --> connections --> API server
//	                                (protobuf,       |  ^     (one HTTP/2 connection,
//	                                 rate limit,     |  |      replaced when Config.Rest
//	                                 Retry-After)    v  |      returns another
//	                                            Before  After  *rest.Config)
//	                                                 \  /
//	                                                 link
//
// The client saves bytes of a metered link: objects are encoded as protobuf, responses above the
// server's threshold (128 KiB) are compressed, answers to changes contain the metadata only, all
// requests share one connection whose header compression reduces a repeated header to a byte, and
// new connections resume the TLS session.
//
// A dead connection is detected by the first of these: a request without an answer, such as the
// lease's every few seconds; the kernel, when sent data are not acknowledged; an HTTP/2 ping,
// which is sent only after a time without any data. So an idle link carries no extra traffic.
package kube
