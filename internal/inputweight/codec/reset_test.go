package codec

import (
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestCancelledInAMessage cancels calls in the middle of a large message. It checks that the message's share of the pool is freed
// immediately. Many such calls affect neither the connection nor other calls.
func TestCancelledInAMessage(t *testing.T) {
	begun, finish := make(chan struct{}, 1), make(chan struct{})
	var calls, connections atomic.Int32
	socket := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 { // the call that continues
			_, _ = w.Write(partOfMessage(100, 50))
			_ = http.NewResponseController(w).Flush()
			begun <- struct{}{}
			<-finish
			_, _ = w.Write(partOfMessage(100, 100)[messageHead+50:])
			return
		}
		_, _ = w.Write(partOfMessage(most, 32<<10))
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
	})
	front := socket + ".count"
	ln, err := net.Listen("unix", front)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go relay(ln, socket, &connections)
	c := client(t, front)
	other := make(chan error, 1)
	go func() {
		_, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{})
		other <- err
	}()
	<-begun
	for range maxIncomplete + 10 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := c.Check(ctx, &healthpb.HealthCheckRequest{})
			ended <- err
		}()
		<-begun
		cancel()
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
	}
	// The whole pool is free before receiveTime has passed.
	ctx, cancel := context.WithTimeout(t.Context(), receiveTime/2)
	defer cancel()
	if err := largeMessages.acquire(ctx, &ReceiveLimit{}, poolSize); err != nil {
		t.Fatal(err)
	}
	largeMessages.mu.Lock()
	largeMessages.release(poolSize)
	largeMessages.mu.Unlock()
	close(finish)
	select {
	case err := <-other:
		if err != nil {
			t.Errorf("the other call: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the other call does not return")
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

// relay forwards connections from ln to a socket and counts them.
func relay(ln net.Listener, socket string, count *atomic.Int32) {
	for {
		from, err := ln.Accept()
		if err != nil {
			return
		}
		count.Add(1)
		to, err := net.Dial("unix", socket)
		if err != nil {
			from.Close()
			return
		}
		go carry(to, from)
		go carry(from, to)
	}
}

func carry(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if _, werr := to.Write(b[:n]); err != nil || werr != nil {
			return
		}
	}
}

// TestResets checks that the reset streams of a client are detected for any division of the client's frames into writes.
func TestResets(t *testing.T) {
	frame := func(kind byte, stream uint32, content string) string {
		head := []byte{0, byte(len(content) >> 8), byte(len(content)), kind, 0}
		return string(binary.BigEndian.AppendUint32(head, stream)) + content
	}
	text := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, "") + frame(headFrame, 1, "headers") + frame(dataFrame, 1,
		"\x00\x00\x04\x03\x00\x00\x00") +
		frame(resetFrame, 1, "1234") + frame(dataFrame, 3, "data") + frame(resetFrame, 3, "1234")
	for size := 1; size <= len(text); size++ {
		in := &ReceiveLimit{limit: most}
		c := in.wrapConn(nil).(*conn)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			c.parseSent([]byte(rest[:n]))
			rest = rest[n:]
		}
		if len(c.reset) != 2 || c.reset[0] != 1 || c.reset[1] != 3 {
			t.Errorf("in pieces of %d: %v", size, c.reset)
		}
	}
}
