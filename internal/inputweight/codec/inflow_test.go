package codec

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	most   = 4 << 20 // size of a message in bytes
	window = 64 << 10
)

// serve runs an HTTP/2 server without TLS on a new socket. The function answer writes the response to every call.
func serve(t *testing.T, answer func(http.ResponseWriter, *http.Request)) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		answer(w, r)
		w.Header().Set("Grpc-Status", "0")
	})}
	s.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close(); <-served })
	return socket
}

func client(t *testing.T, socket string) healthpb.HealthClient {
	t.Helper()
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	conn, err := grpc.NewClient("passthrough:///x", append(Client(most, 3*most, dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return healthpb.NewHealthClient(conn)
}

// partOfMessage returns the frame header of a message of the given length, and the first bytes of the message.
func partOfMessage(length, here int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), unknownField(length)[:here]...)
}

// unknownField returns a message of the given length whose only field is unknown.
func unknownField(length int) []byte {
	n := length - 6
	head := []byte{0x7a, byte(n) | 0x80, byte(n>>7) | 0x80, byte(n>>14) | 0x80, byte(n>>21) | 0x80, byte(n >> 28)}
	return append(head, make([]byte, n)...)
}

// TestShares checks that the bytes of incomplete messages from many peers are limited. A stalled peer loses its connection. It loses the
// connection sooner while other peers wait. The message of a waiting peer is then received.
func TestShares(t *testing.T) {
	var sent atomic.Int64
	full := make(chan struct{}, 100)
	stall := func(w http.ResponseWriter, r *http.Request) {
		text := partOfMessage(most, most-1)
		for len(text) > 0 {
			n, err := w.Write(text[:min(len(text), 16<<10)])
			sent.Add(int64(n))
			if err != nil {
				return
			}
			text = text[n:]
		}
		_ = http.NewResponseController(w).Flush()
		full <- struct{}{}
		<-r.Context().Done()
	}
	const peers, at = 6, poolSize / most
	var all sync.WaitGroup
	defer all.Wait()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began := time.Now()
	for range peers {
		c := client(t, serve(t, stall))
		all.Go(func() { _, _ = c.Check(ctx, &healthpb.HealthCheckRequest{}) })
	}
	for range at {
		<-full
	}
	good := client(t, serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(partOfMessage(100<<10, 100<<10)) }))
	small := client(t, serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(partOfMessage(1<<10, 1<<10)) }))
	if _, err := small.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("a small message: %v", err)
	}
	if n := sent.Load(); time.Since(began) < shortestTime && n > poolSize+peers*4*window {
		t.Errorf("%d peers sent %d KiB", peers, n>>10)
	}
	if _, err := good.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("a large message that waits: %v", err)
	}
	if took := time.Since(began); took < shortestTime { // TestSlowPeers checks the maximum
		t.Errorf("the message was received in %v while other peers had the whole pool", took)
	}
}

// TestSharesAreGivenBack checks that the whole pool is free again after many large messages, failed calls and closed connections.
func TestSharesAreGivenBack(t *testing.T) {
	var n atomic.Int32
	socket := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		switch n.Add(1) % 4 {
		case 0:
			_, _ = w.Write(partOfMessage(most, most))
		case 1:
			_, _ = w.Write(partOfMessage(most, 1<<20)) // ends the stream
		case 2:
			_, _ = w.Write(partOfMessage(most, 1<<20))
			panic(http.ErrAbortHandler) // resets the stream
		case 3:
			_, _ = w.Write(append([]byte{0, 0x40, 0, 0, 0}, make([]byte, most)...)) // rejected
		}
	})
	c := client(t, socket)
	for i := range 40 {
		if _, err := c.Check(t.Context(), &healthpb.HealthCheckRequest{}); (err == nil) != (i%4 == 3) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := largeMessages.acquire(t.Context(), &ReceiveLimit{}, poolSize); err != nil {
		t.Fatal(err)
	}
	largeMessages.mu.Lock()
	defer largeMessages.mu.Unlock()
	largeMessages.release(poolSize)
}

// TestCallEnded checks that a message keeps its share of the pool for useTime if it arrives after the end of its call. The share must not
// be kept until the client's next call. Otherwise a plugin that is never called again would block all other plugins. A peer that sends
// many such messages does not increase the memory usage.
func TestCallEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &ReceiveLimit{limit: most}
		c := in.wrapConn(&net.UnixConn{}).(*conn)
		message := partOfMessage(1<<20, 1<<20)
		frame := append([]byte{byte(len(message) >> 16), byte(len(message) >> 8), byte(len(message)), dataFrame, endsStream, 0, 0, 0, 1}, message...)
		for i := range 8 {
			for rest := frame; len(rest) > 0; {
				n, err := c.parse(rest)
				if err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			if i == 0 && largeMessages.idle() {
				t.Fatal("a large message has no share")
			}
			time.Sleep(useTime + time.Second) // in the bubble
			if !largeMessages.idle() {
				t.Fatal("the share was not freed")
			}
		}
		if len(in.inUse) > 1 {
			t.Errorf("%d shares are kept", len(in.inUse))
		}
	})
}

// TestFollow checks that frames are parsed for any division into reads, with padding, and with messages that span frames. The end of a
// stream frees the share of its message before the connection ends. Trailers end a stream too. A peer with too many incomplete messages
// gets an error.
func TestFollow(t *testing.T) {
	frame := func(kind, flags byte, stream uint32, content string) string {
		head := []byte{0, byte(len(content) >> 8), byte(len(content)), kind, flags}
		return string(binary.BigEndian.AppendUint32(head, stream)) + content
	}
	long := strings.Repeat("x", maxSmall+1)
	prefix := string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(long))))
	text := frame(4, 0, 0, "123456") + frame(dataFrame, 0, 1, "\x00\x00\x00\x00\x03ab") + frame(1, 0xff&^endsStream, 1, "headers") +
		frame(dataFrame, hasPadding, 1, "\x04c\x00\x00padd") + frame(dataFrame, 0, 1, "\x00\x00\x01z") + // one message, then one in two parts
		frame(dataFrame, 0, 3, prefix+long[:100]) + frame(dataFrame, hasPadding, 3, "\x00"+long[100:]) + // large and complete
		frame(dataFrame, 0, 5, prefix) + frame(resetFrame, 0, 5, "1234") + frame(dataFrame, 0, 7, prefix) + frame(dataFrame, endsStream, 7, "") +
		frame(dataFrame, 0, 11, prefix) + frame(headFrame, endsStream, 11, "trailers") + frame(dataFrame, hasPadding, 9, "\xff")
	for _, size := range []int{1, 2, 7, 1000, len(text)} {
		in := &ReceiveLimit{limit: most}
		c := in.wrapConn(&net.UnixConn{}).(*conn)
		for rest := []byte(text); len(rest) > 0; {
			part := rest[:min(size, len(rest))]
			rest = rest[len(part):]
			for len(part) > 0 {
				n, err := c.parse(part)
				if err != nil {
					t.Fatal(err)
				}
				part = part[n:]
			}
		}
		if len(c.incomplete) != 0 || len(in.inUse) != 1 || len(c.head) != 0 || c.frame.left != 0 {
			t.Errorf("by %d bytes: %d messages are begun, %d large ones came, %d bytes of a head, %d of a frame", size, len(c.incomplete),
				len(in.inUse), len(c.head), c.frame.left)
		}
		in.release()
		if !largeMessages.idle() {
			t.Fatal("a share is not given back")
		}
	}
	c := (&ReceiveLimit{limit: most}).wrapConn(&net.UnixConn{}).(*conn)
	for i := range uint32(2 * maxIncomplete) {
		for rest := []byte(frame(dataFrame, 0, 2*i+1, "x")); len(rest) > 0; {
			n, err := c.parse(rest)
			if errors.Is(err, errIncomplete) && i == maxIncomplete {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
	}
	t.Error("the number of incomplete messages is not limited")
}
