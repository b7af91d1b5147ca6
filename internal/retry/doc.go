// Package retry says when to try again what failed for want of another machine: how
// long the next wait is.
//
//	tries in a row --doubling, up to Soon------.
//	length of the outage / 32 -----------------+-- larger, up to Most --> window --.
//	Retry-After, doubling with each ----------'                                    |
//	Retry-After -----------------------------------------------------------------> + --> wait
//
// The wait is anywhere within its window (full jitter), so machines that failed together
// do not come back together: a fleet that lost its server for an hour returns over two
// minutes, while one that lost it for a few seconds is back within five. See "Exponential
// Backoff And Jitter", https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/.
//
// The package imports nothing of islet, and every part of it may use it.
package retry
