package server

import (
	"bytes"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/runtime/shim/wire"
)

// received reads all frames of a connection. It also returns the payload of the frame StreamEnd, and whether it has read this frame.
func received(t *testing.T, c net.Conn) (out string, end string, hasEnd bool) {
	t.Helper()
	var b strings.Builder
	buf := make([]byte, wire.MaxFrame)
	for {
		stream, p, err := wire.ReadFrame(c, buf)
		switch {
		case err != nil:
			return b.String(), end, hasEnd
		case stream == wire.StreamEnd:
			end, hasEnd = string(p), true
		default:
			b.Write(p)
		}
	}
}

// attached returns the streams of a container with one attached client. It also returns the client's end of the connection.
func attached(end bool) (s *containerStreams, c *client, theirs net.Conn) {
	ours, theirs := net.Pipe()
	s = emptyStreams()
	c = newClient(ours, wire.AttachRequest{Stdout: true, End: end})
	s.clients[c] = struct{}{}
	go c.send()
	return s, c, theirs
}

// TestStoppingReader checks a reader that pauses for less than readTimeout. Meanwhile the container is blocked. The reader receives every
// byte.
func TestStoppingReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, theirs := attached(true)
		want := strings.Repeat("0123456789abcdef", 100<<10/16*10)
		var written atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for chunk := range chunks(want) {
				s.sendToClients(wire.StreamStdout, chunk)
				written.Add(int64(len(chunk)))
			}
			s.finishOutput(time.Second)
		}()
		time.Sleep(readTimeout - time.Second)
		if n := written.Load(); n > maxQueued+16<<10 {
			t.Errorf("%d bytes are queued", n)
		}
		if out, end, hasEnd := received(t, theirs); out != want || end != "" || !hasEnd {
			t.Errorf("%d of %d bytes, end %q %v", len(out), len(want), end, hasEnd)
		}
		<-done
		<-c.disconnected
	})
}

func chunks(s string) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for r := strings.NewReader(s); ; {
			b := make([]byte, 16<<10)
			n, err := io.ReadFull(r, b)
			if n == 0 || !yield(b[:n]) || err != nil {
				return
			}
		}
	}
}

// TestLostReader checks that a reader that pauses for longer than readTimeout gets an error. If there are several such readers, the
// container is blocked only once for readTimeout.
func TestLostReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, theirs := attached(true)
		for range 3 {
			ours, other := net.Pipe()
			defer other.Close()
			more := newClient(ours, wire.AttachRequest{Stdout: true, End: true})
			s.clients[more] = struct{}{}
			go more.send()
		}
		began := time.Now()
		want := strings.Repeat("x", 1<<20)
		for chunk := range chunks(want) {
			s.sendToClients(wire.StreamStdout, chunk)
		}
		if took := time.Since(began); took != readTimeout {
			t.Errorf("the container was blocked for %v", took)
		}
		out, end, hasEnd := received(t, theirs)
		if len(out) >= len(want) || !hasEnd || !strings.Contains(end, "bytes of output are missing") {
			t.Errorf("%d bytes, end %q %v", len(out), end, hasEnd)
		}
		<-c.disconnected
		s.sendToClients(wire.StreamStdout, []byte("x")) // must not block
	})
}

// TestEndWithSlowReader checks that a slow reader does not delay the end of a container. The reader receives the rest of the output.
func TestEndWithSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, theirs := attached(true)
		want := strings.Repeat("y", 1<<20)
		began := time.Now()
		close(s.ended)
		for chunk := range chunks(want) {
			s.sendToClients(wire.StreamStdout, chunk)
		}
		c.finishOutput()
		if took := time.Since(began); took != 0 {
			t.Errorf("the end took %v", took)
		}
		time.Sleep(time.Hour)
		if out, end, hasEnd := received(t, theirs); out != want || end != "" || !hasEnd {
			t.Errorf("%d of %d bytes, end %q %v", len(out), len(want), end, hasEnd)
		}
	})
}

// TestVanishingReader checks that a container continues when its slow reader disconnects. An older agent does not receive StreamEnd.
func TestVanishingReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, theirs := attached(true)
		began := time.Now()
		go func() { time.Sleep(time.Minute); theirs.Close() }()
		for range 100 {
			s.sendToClients(wire.StreamStdout, bytes.Repeat([]byte("z"), 16<<10))
		}
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the container was blocked for %v", took)
		}
		<-c.disconnected
	})
	synctest.Test(t, func(t *testing.T) {
		s, _, theirs := attached(false)
		go func() { s.sendToClients(wire.StreamStdout, []byte("old")); s.finishOutput(time.Second) }()
		if out, _, hasEnd := received(t, theirs); out != "old" || hasEnd {
			t.Errorf("got %q, hasEnd %v", out, hasEnd)
		}
	})
}
