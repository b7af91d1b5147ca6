// Package review authenticates and authorizes the clients of the node's own server. It sends TokenReviews and SubjectAccessReviews to the
// API server.
//
//	bearer token --> Tokens.AuthenticateToken --TokenReview------> API server
//	user, verb ----> Access.Authorize --SubjectAccessReview------> API server
//	                  |   ^
//	                  v   | answers, for as long as configured
//	                 cache (bounded, keyed by hashes)
//
// Concurrent identical requests cause only one review. Answers are never used longer than their TTL. While the link is down, only clients
// with a cached answer are therefore admitted. Errors are not cached. The number of concurrent reviews is limited, so unknown clients
// cannot delay the node's own requests.
//
// Anybody who can reach the port can send tokens. A network (see package connlimit) therefore gets at most half of the concurrent reviews,
// a short queue, and few reviews after many rejections. Clients are first if their question had a positive answer before, or if their
// address was authenticated before. Negative answers never replace positive ones in the cache.
package review
