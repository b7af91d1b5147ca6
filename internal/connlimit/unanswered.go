package connlimit

import "net/netip"

// maxUnanswered is the maximum number of unanswered bytes of all unauthenticated connections
// together. In the server, the decoded bytes take up to twenty times as much memory, because a
// header line of five bytes becomes a map entry.
const maxUnanswered = 1 << 20

// Read counts the bytes that the client of an unauthenticated connection sends. If all such clients
// together send too much, it closes the connection of the client that sent the most.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.uncounted.Load() {
		if victim := c.l.countUnanswered(c, n); victim != nil {
			victim.Conn.Close()
		}
	}
	return n, err
}

// countUnanswered adds bytes to the count of a connection. If a connection has to be closed because
// of these bytes, countUnanswered returns that connection.
func (l *Listener) countUnanswered(c *conn, n int) (victim *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state != unauthenticated || c.hijacked {
		return nil
	}
	c.unanswered += n
	if l.unanswered += n; l.unanswered <= maxUnanswered {
		return nil
	}
	if victim = l.biggestSender(); victim == nil {
		return nil
	}
	if !l.overLogged {
		l.c.Log.Warn("unauthenticated clients sent too much: the connection that sent the most is closed",
			"port", l.c.PortName, "bytes", maxUnanswered, "from", victim.from.Addr(), "sent", victim.unanswered)
	}
	l.overLogged = true
	l.freePlace(victim)
	victim.state = closing
	l.closing++
	return victim
}

// biggestSender selects the network with the most unanswered bytes. It returns the connection with the most
// unanswered bytes in this network.
func (l *Listener) biggestSender() (out *conn) {
	sent := map[netip.Prefix]int{}
	for _, c := range l.conns {
		sent[l.networkOf(c.from.Addr())] += c.unanswered
	}
	for _, c := range l.conns {
		if c.unanswered == 0 {
			continue
		}
		if out == nil {
			out = c
			continue
		}
		of, best := l.networkOf(c.from.Addr()), l.networkOf(out.from.Addr())
		if of == best && c.unanswered > out.unanswered || of != best && sent[of] > sent[best] {
			out = c
		}
	}
	return out
}

// resetUnanswered sets a connection's count of unanswered bytes to zero. The caller holds mu.
func (c *conn) resetUnanswered() {
	c.l.unanswered -= c.unanswered
	c.unanswered = 0
	c.l.overLogged = c.l.overLogged && c.l.unanswered > maxUnanswered/4 // log the next excess again
}
