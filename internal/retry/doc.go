// Package retry computes how long to wait before the next attempt at something that failed because
// of another machine.
//
//	tries in a row --doubling, up to Soon------.
//	length of the outage / 32 -----------------+-- larger, up to Most --> window --.
//	Retry-After, doubling with each ----------'                                    |
//	Retry-After -----------------------------------------------------------------> + --> wait
//
// The wait is a random time within its window (full jitter), so that machines that failed at the
// same time do not retry at the same time. A fleet that lost its server for an hour reconnects over
// two minutes; one that lost it for a few seconds reconnects within five. See "Exponential Backoff
// And Jitter", https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
package retry
