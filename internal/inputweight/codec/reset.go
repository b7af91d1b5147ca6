package codec

import "encoding/binary"

// prefaceLength is the length of the HTTP/2 client preface, which precedes the frames of a client.
const prefaceLength = 24

// maxReset is the maximum number of reset streams that are remembered. Data of a stream that was reset
// earlier does not arrive any more.
const maxReset = 256

// frameScanner contains the state of the scan for HTTP/2 frames in the bytes that the client sends.
type frameScanner struct {
	begun bool   // the preface was seen
	head  []byte // the part of a frame's header that was sent
	skip  int    // bytes until the next frame
}

// Write detects the streams that the client resets, for example for a cancelled call. The rest of such a stream's
// message does not arrive. So Write frees the message's share, and the peer does not count as slow.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.parseSent(b[:n])
	return n, err
}

func (c *conn) parseSent(b []byte) {
	s := &c.sender
	if !s.begun {
		s.begun, s.skip = true, prefaceLength
	}
	for len(b) > 0 {
		if n := min(len(b), s.skip); n > 0 {
			b, s.skip = b[n:], s.skip-n
			continue
		}
		n := min(len(b), frameHead-len(s.head))
		s.head, b = append(s.head, b[:n]...), b[n:]
		if h := s.head; len(h) == frameHead {
			s.head, s.skip = h[:0], int(h[0])<<16|int(h[1])<<8|int(h[2])
			if h[3] == resetFrame {
				c.discardReset(binary.BigEndian.Uint32(h[5:]) &^ (1 << 31))
			}
		}
	}
}

func (c *conn) discardReset(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.discard(id)
	if c.reset = append(c.reset, id); len(c.reset) > maxReset {
		c.reset = c.reset[1:]
	}
}
