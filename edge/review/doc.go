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
package review
