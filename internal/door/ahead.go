package door

import "net/netip"

// maxAhead bounds what all strangers together have sent and not been answered, in bytes. A
// server holds that decoded, which takes up to twenty times as much: five bytes are a line of
// a header, and so an entry of a map.
const maxAhead = 1 << 20

// Read counts what a stranger sends. Where all send too much, one of those that sent most gives way.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		if victim := c.l.charge(c, n); victim != nil {
			victim.Conn.Close()
		}
	}
	return n, err
}

// charge counts bytes of a connection. Victim is the one that has to give way for them, if any.
func (l *Listener) charge(c *conn, n int) (victim *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.is != stranger || c.taken {
		return nil
	}
	c.ahead += n
	if l.ahead += n; l.ahead <= maxAhead {
		return nil
	}
	if victim = l.talker(); victim == nil {
		return nil
	}
	if !l.talking {
		l.c.Log.Warn("clients that have not authenticated sent more than a port takes: one of those that sent most gives way",
			"port", l.c.What, "bytes", maxAhead, "from", victim.from.Addr(), "sent", victim.ahead)
	}
	l.talking = true
	l.leave(victim)
	victim.is = leaving
	l.leaving++
	return victim
}

// talker is the stranger with the most bytes, in the network with the most.
func (l *Listener) talker() (out *conn) {
	sent := map[netip.Prefix]int{}
	for _, c := range l.conns {
		sent[l.network(c.from.Addr())] += c.ahead
	}
	for _, c := range l.conns {
		if c.ahead == 0 {
			continue
		}
		if out == nil {
			out = c
			continue
		}
		of, best := l.network(c.from.Addr()), l.network(out.from.Addr())
		if of == best && c.ahead > out.ahead || of != best && sent[of] > sent[best] {
			out = c
		}
	}
	return out
}

// answered forgets what a connection has sent. The caller holds mu.
func (c *conn) answered() {
	c.l.ahead -= c.ahead
	c.ahead = 0
	c.l.talking = c.l.talking && c.l.ahead > maxAhead/4 // a new flood is worth a new line
}
