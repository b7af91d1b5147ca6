// Package retry computes the wait before the next attempt at an operation that failed because of
// another machine. A Pace computes the minimum interval of an operation that succeeds and is due again
// at once.
//
//	failed attempts --doubling, up to SecondWindow------.
//	length of the outage / 32 -----------------+-- larger, up to MaxWindow --> window --.
//	Retry-After, doubling with each ----------'                                    |
//	Retry-After -----------------------------------------------------------------> + --> wait
//
// The wait is a random time within its window (full jitter), so that machines that failed at the
// same time do not retry at the same time. After an outage of an hour, a fleet reconnects over two
// minutes. After an outage of a few seconds, it reconnects within five seconds. For the reasons see
// "Exponential Backoff And Jitter",
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
package retry
