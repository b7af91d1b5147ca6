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
// with a cached answer are therefore admitted. Errors are not cached, except for a rejection with an error, which is reused for 10 s. If
// the last answer for the token was positive, it is reused for 1 s only, and the token keeps its precedence until the next rejection. The
// number of concurrent reviews is limited, so unknown clients cannot delay the node's own requests.
//
// Anybody who can reach the port can send tokens, so reviews wait for one of eight places. The next review is that of the network (see
// package connlimit) with the fewest running reviews, and in this network of the address with the fewest reviews and recent rejections. A
// network gets at most half of the places, and an address with 32 recent rejections waits until one is forgotten, which takes 1 s. If too
// many reviews wait, the network with the most loses one, of the address with the most reviews and recent rejections.
//
// A token whose last review was positive is not subject to these rules and is always first. Addresses that were authenticated before are
// next. The same invalid token never fills the limit of an address, because its rejection is reused for longer than it is remembered.
// Invalid tokens never remove the last 256 valid ones from the cache.
package review
