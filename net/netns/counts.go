package netns

import "sync/atomic"

// Counts contains the numbers of the operations in a namespace that cost the most CPU time. Tests compare these numbers instead of times,
// because the numbers do not depend on the machine.
type Counts struct {
	Visits   atomic.Int64 // threads that entered the namespace
	Sockets  atomic.Int64 // netlink sockets that were opened in the namespace
	Sends    atomic.Int64 // system calls of Socket.Send
	Requests atomic.Int64 // requests of Socket.Send
}

// Counted returns a copy of n. Calls of the copy's methods are added to the counts.
func (n NS) Counted(to *Counts) NS {
	n.counts = to
	return n
}

// CountSocket adds a socket that the caller has opened in the namespace to the counts.
func (n NS) CountSocket() { n.counts.addSocket() }

func (c *Counts) addVisit() {
	if c != nil {
		c.Visits.Add(1)
	}
}

func (c *Counts) addSocket() {
	if c != nil {
		c.Sockets.Add(1)
	}
}

func (c *Counts) addSend(requests int) {
	if c != nil {
		c.Sends.Add(1)
		c.Requests.Add(int64(requests))
	}
}
