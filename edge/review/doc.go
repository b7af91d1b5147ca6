// Package review authenticates and authorizes the clients of the node's own server. It sends reviews to the
// API server.
//
//	bearer token --> Tokens.AuthenticateToken --TokenReview------> API server
//	user, verb ----> Access.Authorize --SubjectAccessReview------> API server
//	                  |   ^
//	                  v   | answers, for as long as configured
//	                 cache (bounded, keyed by hashes)
//
// Identical requests at the same time cause only one review. Answers are cached for their TTL, and not
// longer. So while the link is down, only clients with a cached answer are admitted. Errors are not cached.
// The number of concurrent reviews is limited, so that unknown clients cannot delay the node's own
// requests.
package review
