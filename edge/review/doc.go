// Package review asks the API server who a caller of the node's own server is, and what
// it may do.
//
//	bearer token --> Tokens.AuthenticateToken --TokenReview------> API server
//	user, verb ----> Access.Authorize --SubjectAccessReview------> API server
//	                  |   ^
//	                  v   | answers, for as long as configured
//	                 cache (bounded, keyed by hashes)
//
// The same question asked by many at once is asked of the server once. Answers are
// kept for their time and no longer: while the link is down nobody new is let in. Errors
// are not kept. Callers that nobody knows must not starve the node's own requests, so
// few questions are under way at a time.
package review
