// Package review authenticates and authorizes the callers of the node's own server by requests to
// the API server.
//
//	bearer token --> Tokens.AuthenticateToken --TokenReview------> API server
//	user, verb ----> Access.Authorize --SubjectAccessReview------> API server
//	                  |   ^
//	                  v   | answers, for as long as configured
//	                 cache (bounded, keyed by hashes)
//
// Identical requests at the same time are sent to the server once. Answers are cached for their
// TTL and not longer, so while the link is down only callers with a cached answer are admitted.
// Errors are not cached. The number of concurrent requests is small, so that unknown callers
// cannot starve the node's own requests.
package review
