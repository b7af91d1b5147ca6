package codec

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
)

// maxBegun is how many messages of one connection may not be whole.
const maxBegun = 256

// errSlow, errBegun are why a connection ends.
var (
	errSlow  = errors.New("a large message did not come in time")
	errBegun = errors.New("too many messages are begun")
)

// An Inflow bounds what the peer of one gRPC client sends. A large message is received when it has
// its share of the pool, and keeps that until a call to the peer has returned or the next message of a
// stream is asked for, or for useTime: the call that it is for may have ended before it came. A peer
// that is slow with a large message loses its connection, and sooner while others wait.
type Inflow struct {
	most int // bytes of a message that the client takes
	slow int // how often the peer was slow; the pool's mutex guards it

	mu    sync.Mutex
	whole []*share // of messages that came and may be in use
}

// Client returns the options of a gRPC client that takes messages of at most so many bytes, which
// need at most memory bytes once they are decoded, over connections that dial makes.
func Client(most int, memory int64, dial func(context.Context, string) (net.Conn, error)) []grpc.DialOption {
	in := &Inflow{most: most}
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(most), grpc.ForceCodecV2(New(memory))),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := dial(ctx, address)
			if err != nil {
				return nil, err
			}
			return in.conn(c), nil
		}),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, res any, c *grpc.ClientConn, call grpc.UnaryInvoker, os ...grpc.CallOption) error {
			defer in.release()
			return call(ctx, method, req, res, c, os...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, os ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, d, c, method, os...)
			return stream{s, in}, err
		}),
	}
}

type stream struct {
	grpc.ClientStream
	in *Inflow
}

// RecvMsg is called when the message before is no longer in use.
func (s stream) RecvMsg(m any) error {
	s.in.release()
	return s.ClientStream.RecvMsg(m)
}

// release gives back the shares of messages that came.
func (in *Inflow) release() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.whole {
		large.drop(s)
	}
	in.whole = nil
}

func (in *Inflow) conn(c net.Conn) net.Conn {
	out := &conn{Conn: c, in: in, begun: map[uint32]*message{}}
	out.ctx, out.cancel = context.WithCancelCause(context.Background())
	return out
}

// A conn parses the HTTP/2 frames that a server sends, to find where gRPC messages begin and end.
type conn struct {
	net.Conn
	in     *Inflow
	ctx    context.Context // of the connection
	cancel context.CancelCauseFunc

	// These belong to Read.
	head  []byte // of a frame, as far as it came
	frame frame
	begun map[uint32]*message // by stream
}

// A frame is the HTTP/2 frame whose content is being read.
type frame struct {
	stream       uint32
	data, padded bool
	ends         bool // the stream
	left         int  // bytes of the content
	padding      int  // bytes of those, at the end
}

// A message is a gRPC message that has not come completely.
type message struct {
	prefix []byte // as far as it came: whether it is compressed, and its length
	left   int    // bytes
	share  *share // nil: it needs none
}

const (
	frameHead   = 9
	messageHead = 5
	dataFrame   = 0
	headFrame   = 1 // of trailers, too
	resetFrame  = 3
	endsStream  = 0x1
	hasPadding  = 0x8
)

// Close frees the shares of messages that have not come completely.
func (c *conn) Close() error {
	c.cancel(net.ErrClosed)
	return c.Conn.Close()
}

// Read waits where a message has to wait for its share.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		used, failed := c.take(rest)
		if failed != nil {
			return 0, errors.Join(failed, c.Close())
		}
		rest = rest[used:]
	}
	if why := context.Cause(c.ctx); err != nil && why != nil {
		err = errors.Join(why, err)
	}
	return n, err
}

// take follows some bytes, at least one.
func (c *conn) take(b []byte) (used int, err error) {
	if c.frame.left == 0 { // a frame begins
		used = min(len(b), frameHead-len(c.head))
		if c.head = append(c.head, b[:used]...); len(c.head) < frameHead {
			return used, nil
		}
		h := c.head
		c.head = h[:0]
		data := h[3] == dataFrame
		c.frame = frame{
			stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31), data: data, padded: data && h[4]&hasPadding != 0,
			ends: h[3] <= headFrame && h[4]&endsStream != 0 || h[3] == resetFrame, left: int(h[0])<<16 | int(h[1])<<8 | int(h[2]),
		}
		c.ended()
		return used, nil
	}
	if c.frame.padded {
		c.frame.padded = false
		c.frame.left--
		c.frame.padding = min(int(b[0]), c.frame.left)
		c.ended()
		return 1, nil
	}
	used = min(len(b), c.frame.left)
	if content := min(used, c.frame.left-c.frame.padding); c.frame.data && content > 0 {
		if err := c.content(c.frame.stream, b[:content]); err != nil {
			return 0, err
		}
	}
	c.frame.left -= used
	c.ended()
	return used, nil
}

// ended forgets the message of a stream that ends with the frame.
func (c *conn) ended() {
	if c.frame.left == 0 && c.frame.ends {
		if m := c.begun[c.frame.stream]; m != nil && m.share != nil {
			large.drop(m.share)
		}
		delete(c.begun, c.frame.stream)
	}
}

// content follows the messages of a stream.
func (c *conn) content(id uint32, b []byte) error {
	for len(b) > 0 {
		m := c.begun[id]
		if m == nil {
			if len(c.begun) == maxBegun {
				return errBegun
			}
			m = &message{}
			c.begun[id] = m
		}
		if n := min(len(b), messageHead-len(m.prefix)); n > 0 {
			m.prefix = append(m.prefix, b[:n]...)
			if b = b[n:]; len(m.prefix) < messageHead {
				return nil
			}
			m.left = int(binary.BigEndian.Uint32(m.prefix[1:]))
			size := m.left
			if m.prefix[0] != 0 { // compressed
				size = c.in.most
			}
			if size > small && m.left <= c.in.most { // the client takes none that is larger
				if err := c.wait(m, size); err != nil {
					return err
				}
			}
		}
		n := min(len(b), m.left)
		b = b[n:]
		if m.left -= n; m.left == 0 {
			delete(c.begun, id)
			c.in.came(m)
		}
	}
	return nil
}

// wait waits for the share of a message.
func (c *conn) wait(m *message, bytes int) error {
	size := min(int64(bytes), atOnce)
	if err := large.acquire(c.ctx, c.in, size); err != nil {
		return err
	}
	m.share = large.hold(c, size, func() {
		c.cancel(errSlow)
		_ = c.Conn.Close() // whoever reads learns it
	})
	return nil
}

// came notes a message that has come.
func (in *Inflow) came(m *message) {
	if m.share == nil {
		return
	}
	large.came(m.share)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.whole = append(slices.DeleteFunc(in.whole, func(s *share) bool { return !large.isHeld(s) }), m.share)
}
