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

// maxIncomplete is the maximum number of incomplete messages of one connection.
const maxIncomplete = 256

// These errors are the reasons for closing a connection.
var (
	errSlow       = errors.New("a large message was not received in time")
	errIncomplete = errors.New("too many messages are incomplete")
)

// A ReceiveLimit limits the memory for messages from the peer of one gRPC client. The client receives a large message only
// after the pool has granted a share. The message keeps its share until the call returns, or until the next message of
// the stream is requested. It keeps the share for at most useTime, because the call may have ended before the message
// arrived. If a peer sends a large message too slowly, its connection is closed. While other messages wait for the
// pool, the time limit is shorter.
type ReceiveLimit struct {
	limit int // the largest message that the client accepts, in bytes
	slow  int // number of times that the peer was slow; guarded by the pool's mutex

	mu    sync.Mutex
	inUse []*share // shares of received messages that may still be in use
}

// Client returns the options of a gRPC client. The parameter limit is the maximum size of a message in bytes. The parameter memory is the
// maximum size of a decoded message in bytes. The function dial opens the connections.
func Client(limit int, memory int64, dial func(context.Context, string) (net.Conn, error)) []grpc.DialOption {
	in := &ReceiveLimit{limit: limit}
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(limit), grpc.ForceCodecV2(New(memory))),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := dial(ctx, address)
			if err != nil {
				return nil, err
			}
			return in.wrapConn(c), nil
		}),
		grpc.WithChainUnaryInterceptor(func(
			ctx context.Context, method string, req, res any, c *grpc.ClientConn, call grpc.UnaryInvoker, os ...grpc.CallOption,
		) error {
			defer in.release()
			return call(ctx, method, req, res, c, os...)
		}),
		grpc.WithChainStreamInterceptor(func(
			ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, os ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			s, err := open(ctx, d, c, method, os...)
			return stream{s, in}, err
		}),
	}
}

type stream struct {
	grpc.ClientStream
	in *ReceiveLimit
}

// RecvMsg receives the next message. The caller does not use the previous message any more, so RecvMsg releases the
// previous message's share.
func (s stream) RecvMsg(m any) error {
	s.in.release()
	return s.ClientStream.RecvMsg(m)
}

// release frees the shares of received messages.
func (in *ReceiveLimit) release() {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, s := range in.inUse {
		largeMessages.freeShare(s)
	}
	in.inUse = nil
}

func (in *ReceiveLimit) wrapConn(c net.Conn) net.Conn {
	out := &conn{Conn: c, in: in, incomplete: map[uint32]*message{}}
	out.ctx, out.cancel = context.WithCancelCause(context.Background())
	return out
}

// A conn parses the HTTP/2 frames from a server to find the beginning and end of gRPC messages.
type conn struct {
	net.Conn
	in     *ReceiveLimit
	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc

	// The following fields are used only by Read.
	head  []byte // the received part of a frame's header
	frame frame

	sender frameScanner // used only by Write

	mu         sync.Mutex
	incomplete map[uint32]*message // incomplete messages by stream
	reset      []uint32            // the streams that the client reset most recently; gRPC discards data of these streams
}

// A frame describes the HTTP/2 frame whose payload is being read.
type frame struct {
	stream       uint32
	data, padded bool
	ends         bool // this is the stream's last frame
	left         int  // unread bytes of the payload
	padding      int  // bytes of padding at the end of the payload
}

// A message describes a gRPC message that was not received completely yet.
type message struct {
	prefix []byte // the received part of the prefix: a compression flag and the length
	left   int    // missing bytes
	share  *share // nil if the message is small
}

const (
	frameHead   = 9
	messageHead = 5
	dataFrame   = 0
	headFrame   = 1 // HEADERS; trailers are such a frame too
	resetFrame  = 3
	endsStream  = 0x1
	hasPadding  = 0x8
)

// Close frees the shares of incomplete messages.
func (c *conn) Close() error {
	c.cancel(net.ErrClosed)
	return c.Conn.Close()
}

// Read blocks while a large message waits for its share.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		used, failed := c.parse(rest)
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

// parse processes at least one of the bytes and returns the number of processed bytes.
func (c *conn) parse(b []byte) (used int, err error) {
	if c.frame.left == 0 { // the next bytes belong to the header of a frame
		used = min(len(b), frameHead-len(c.head))
		if c.head = append(c.head, b[:used]...); len(c.head) < frameHead {
			return used, nil
		}
		h := c.head
		c.head = h[:0]
		data := h[3] == dataFrame
		c.frame = frame{
			stream: binary.BigEndian.Uint32(h[5:]) &^ (1 << 31),
			data:   data,
			padded: data && h[4]&hasPadding != 0,
			ends:   h[3] <= headFrame && h[4]&endsStream != 0 || h[3] == resetFrame,
			left:   int(h[0])<<16 | int(h[1])<<8 | int(h[2]),
		}
		c.endFrame()
		return used, nil
	}
	if c.frame.padded {
		c.frame.padded = false
		c.frame.left--
		c.frame.padding = min(int(b[0]), c.frame.left)
		c.endFrame()
		return 1, nil
	}
	used = min(len(b), c.frame.left)
	if content := min(used, c.frame.left-c.frame.padding); c.frame.data && content > 0 {
		if err := c.parseContent(c.frame.stream, b[:content]); err != nil {
			return 0, err
		}
	}
	c.frame.left -= used
	c.endFrame()
	return used, nil
}

// endFrame discards the incomplete message of a stream when the last frame of the stream is complete. For other
// frames it does nothing.
func (c *conn) endFrame() {
	if c.frame.left == 0 && c.frame.ends {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.discard(c.frame.stream)
	}
}

// discard removes the incomplete message of a stream and frees its share. The caller holds mu.
func (c *conn) discard(id uint32) {
	if m := c.incomplete[id]; m != nil && m.share != nil {
		largeMessages.freeShare(m.share)
	}
	delete(c.incomplete, id)
}

// parseContent processes the payload of a stream's data frame.
func (c *conn) parseContent(id uint32, b []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(b) > 0 && !slices.Contains(c.reset, id) {
		m := c.incomplete[id]
		if m == nil {
			if len(c.incomplete) == maxIncomplete {
				return errIncomplete
			}
			m = &message{}
			c.incomplete[id] = m
		}
		if n := min(len(b), messageHead-len(m.prefix)); n > 0 {
			m.prefix = append(m.prefix, b[:n]...)
			b = b[n:]
			if len(m.prefix) < messageHead {
				return nil
			}
			m.left = int(binary.BigEndian.Uint32(m.prefix[1:]))
			size := m.left
			if m.prefix[0] != 0 { // compressed
				size = c.in.limit
			}
			if size > maxSmall && m.left <= c.in.limit { // the client rejects messages that are larger
				c.mu.Unlock()
				err := c.waitForShare(m, size)
				c.mu.Lock()
				if err != nil {
					return err
				}
				if c.incomplete[id] != m { // the call was cancelled meanwhile
					largeMessages.freeShare(m.share)
					return nil
				}
			}
		}
		n := min(len(b), m.left)
		b = b[n:]
		if m.left -= n; m.left == 0 {
			delete(c.incomplete, id)
			c.in.keepShare(m)
		}
	}
	return nil
}

// waitForShare blocks until the message has its share.
func (c *conn) waitForShare(m *message, bytes int) error {
	size := min(int64(bytes), poolSize)
	if err := largeMessages.acquire(c.ctx, c.in, size); err != nil {
		return err
	}
	s := largeMessages.addShare(c, size, func() {
		c.cancel(errSlow)
		_ = c.Conn.Close() // the reader of the connection returns the error
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	m.share = s
	return nil
}

// keepShare keeps the share of a complete message.
func (in *ReceiveLimit) keepShare(m *message) {
	if m.share == nil {
		return
	}
	largeMessages.setReceived(m.share)
	in.mu.Lock()
	defer in.mu.Unlock()
	in.inUse = append(slices.DeleteFunc(in.inUse, func(s *share) bool { return !largeMessages.isHeld(s) }), m.share)
}
