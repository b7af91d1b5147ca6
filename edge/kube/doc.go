// Package kube is the node's client of the API server: typed verbs over client-go's
// rest, with no clientset, no informers and only the types that a node uses.
//
//	Get[T] List[L] Watch[T] ... --> rest.Request --> gate --> connections --> API server
//	                                (protobuf,       |  ^     (one HTTP/2 connection,
//	                                 rate limit,     |  |      made anew when Config's
//	                                 Retry-After)    v  |      function gives another
//	                                            Before  After  *rest.Config)
//	                                                 \  /
//	                                                 link
//
// A request costs bytes of a metered link: objects travel as protobuf, responses
// above the server's threshold (128 KiB) as gzip, answers to changes bring the metadata
// only, all requests share one connection whose header compression makes repeated
// headers cost a byte each, and reconnects resume the TLS session.
//
// A connection that leads nowhere is found by whoever waits for an answer first: the
// lease every few seconds, the kernel when sent data is not acknowledged, and HTTP/2
// pings only when nothing at all arrived for a while. So an idle link carries no
// traffic for its own sake.
package kube
