package kubetest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Line is an in-memory network between one client and one server for tests. It simulates the defects of real networks: low rate, delay
// and loss. It works in a testing/synctest bubble. The zero Line has no defects. A Line is also a net.Listener that accepts the connections
// of Dial.
//
//	Dial --packets--> rate (shared by all connections) --> delay --> loss --> Accept
//
// TCP sends a lost packet again. The packet is therefore delayed by one second plus the time of a round trip, and it counts twice for the
// rate. Later data of the same connection waits for this packet.
type Line struct {
	Rate  int           // bytes per second in each direction; 0 means unlimited
	Delay time.Duration // one-way delay
	Loss  float64       // fraction of lost packets
	Seed  uint64        // seed of the random losses

	Sent, Received atomic.Int64 // bytes that the dialing side has sent and received, with headers

	once    sync.Once
	out     *direction
	in      *direction
	queue   chan net.Conn
	closed  chan struct{}
	endOnce sync.Once

	all   sync.WaitGroup
	down  atomic.Bool
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

const (
	packetSize = 1000 // maximum payload of a packet, in bytes
	headerSize = 40   // bytes of the TCP and IP headers
	maxPackets = 32   // maximum number of packets in flight on a connection
)

// A direction computes the arrival times of the packets that travel in one direction of a Line, for all connections.
type direction struct {
	line  *Line
	count *atomic.Int64
	mu    sync.Mutex
	free  time.Time
	rand  *rand.Rand
}

func (l *Line) prepare() {
	l.once.Do(func() {
		l.out = &direction{line: l, count: &l.Sent, rand: rand.New(rand.NewPCG(l.Seed, 1))}
		l.in = &direction{line: l, count: &l.Received, rand: rand.New(rand.NewPCG(l.Seed, 2))}
		l.queue, l.closed, l.conns = make(chan net.Conn), make(chan struct{}), map[net.Conn]struct{}{}
	})
}

// arrivalTime returns the arrival time of a packet that is sent now.
func (w *direction) arrivalTime(n int) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count.Add(int64(n + headerSize))
	var takes time.Duration
	if w.line.Rate > 0 {
		takes = time.Duration(n+headerSize) * time.Second / time.Duration(w.line.Rate)
	}
	if now := time.Now(); w.free.Before(now) {
		w.free = now
	}
	w.free = w.free.Add(takes)
	at := w.free.Add(w.line.Delay)
	for w.rand.Float64() < w.line.Loss {
		w.free = w.free.Add(takes)
		at = at.Add(2*w.line.Delay + time.Second)
	}
	return at
}

// Disconnect makes the line drop all data. Connections stay open until CloseConnections is called.
func (l *Line) Disconnect() { l.down.Store(true) }

// Reconnect makes the line transfer data again after Disconnect.
func (l *Line) Reconnect() { l.down.Store(false) }

// CloseConnections closes all connections.
func (l *Line) CloseConnections() {
	l.prepare()
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

// Dial opens a connection. It takes one round trip.
func (l *Line) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	l.prepare()
	for _, w := range []*direction{l.out, l.in} {
		wait := time.NewTimer(time.Until(w.arrivalTime(0)))
		defer wait.Stop()
		if l.down.Load() {
			wait.Stop()
		}
		select {
		case <-wait.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("dial %s: %w", address, ctx.Err())
		}
	}
	near, nearEnd := net.Pipe()
	far, farEnd := net.Pipe()
	select {
	case l.queue <- far:
	case <-l.closed:
		return nil, fmt.Errorf("dial %s: connection refused", address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	l.conns[nearEnd], l.conns[farEnd] = struct{}{}, struct{}{}
	l.mu.Unlock()
	l.all.Go(func() { l.carry(farEnd, nearEnd, l.out) })
	l.all.Go(func() { l.carry(nearEnd, farEnd, l.in) })
	return near, nil
}

type sentPacket struct {
	data []byte
	at   time.Time
}

// carry transfers data from one end of a connection to the other, with the defects of the line.
func (l *Line) carry(to, from net.Conn, w *direction) {
	under := make(chan sentPacket, maxPackets)
	go func() {
		defer close(under)
		for {
			data := make([]byte, packetSize)
			n, err := from.Read(data)
			if n > 0 && !l.down.Load() {
				under <- sentPacket{data[:n], w.arrivalTime(n)}
			}
			if err != nil {
				return
			}
		}
	}()
	for s := range under {
		// Data in flight is lost if the connection was closed, because Close does not wait for the data. It cannot wait, because its caller
		// may hold locks.
		if !l.waitUntil(s.at) {
			break
		}
		if _, err := to.Write(s.data); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
	for range under { // drains the channel, so that the reading goroutine can end
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, from)
	delete(l.conns, to)
}

// waitUntil waits until the given time. It returns false if the line is closed before that.
func (l *Line) waitUntil(at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closed:
		return false
	}
}

// Accept waits for a connection.
func (l *Line) Accept() (net.Conn, error) {
	l.prepare()
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and all connections.
func (l *Line) Close() error {
	l.prepare()
	l.endOnce.Do(func() { close(l.closed) })
	l.CloseConnections()
	l.all.Wait()
	return nil
}

// Addr returns an IP address and a port, so that a server certificate can contain the address.
func (l *Line) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6443} }

// TransferTime returns the time that the line needs to transfer the given number of bytes to the dialing side, over an idle open
// connection.
func (l *Line) TransferTime(bytes int) (time.Duration, error) {
	other := &Line{Rate: l.Rate, Delay: l.Delay, Loss: l.Loss, Seed: l.Seed}
	defer other.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := other.Accept()
		if err == nil {
			accepted <- c
		}
	}()
	near, err := other.Dial(context.Background(), "", "")
	if err != nil {
		return 0, err
	}
	far, began := <-accepted, time.Now()
	go func() {
		_, _ = far.Write(make([]byte, bytes))
		_ = far.Close()
	}()
	n, err := io.Copy(io.Discard, near)
	if err == nil && n != int64(bytes) {
		err = fmt.Errorf("%d of %d bytes arrived", n, bytes)
	}
	return time.Since(began), err
}
