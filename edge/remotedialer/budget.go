package remotedialer

import "sync/atomic"

const (
	// maxConnections is the maximum number of connections of a Budget.
	maxConnections = 256
	// maxSessionConnections is the maximum number of connections of one session, so that one server cannot take the places of all others.
	maxSessionConnections = 128
	// maxWaiting is the maximum number of bytes that wait in the connections of a Budget.
	maxWaiting = 8 << 20
	// maxConnectionWaiting is the maximum number of bytes that wait in one connection. A server that has received a Pause still sends what
	// is in its buffers.
	maxConnectionWaiting = 4 << 20
	// pauseAt and resumeAt are the numbers of waiting bytes at which a connection is paused and resumed.
	pauseAt, resumeAt = 256 << 10, 32 << 10
)

// A Budget limits all sessions of a node together. Its zero value is ready for use.
type Budget struct {
	connections atomic.Int64
	waiting     atomic.Int64 // bytes
}

// take adds n to a counter unless that would exceed the limit.
func take(counter *atomic.Int64, n, limit int64) bool {
	if counter.Add(n) <= limit {
		return true
	}
	counter.Add(-n)
	return false
}
