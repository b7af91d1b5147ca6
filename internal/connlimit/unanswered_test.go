package connlimit

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestTalkers checks which connection is closed when the number of unanswered bytes exceeds the limit. It is the unauthenticated connection
// that has sent the most bytes, in the network that has sent the most bytes. Answered bytes do not count. Bytes of authenticated and
// hijacked connections do not count either.
func TestTalkers(t *testing.T) {
	h := newHouse(t, 16)
	busy := h.fill(4, "10.42.0.5", "10.42.0.6")
	other, friend, exec := h.connect("192.0.2.10"), h.connect("192.0.2.11"), h.connect("192.0.2.12")
	friend.setAuthenticated()
	exec.setHijacked()
	for _, c := range []*conn{friend, exec} {
		if h.countUnanswered(c, 4*maxUnanswered) != nil || c.unanswered != 0 {
			t.Error("a known connection or a session is counted")
		}
	}
	if v := h.countUnanswered(other, maxUnanswered/4); v != nil {
		t.Error("a connection was closed below the limit")
	}
	for i, c := range busy {
		if v := h.countUnanswered(c, maxUnanswered/8+i); v != nil {
			t.Error("a connection was closed below the limit")
		}
	}
	if v := h.countUnanswered(busy[0], maxUnanswered/4); v != busy[0] {
		t.Errorf("%v was closed, not the connection that has sent the most bytes", v)
	}
	if sum := other.unanswered + busy[1].unanswered + busy[2].unanswered + busy[3].unanswered; h.unanswered != sum || h.closing != 1 {
		t.Errorf("%d bytes of %d are counted, %d leave", h.unanswered, sum, h.closing)
	}
	for _, c := range append(busy[1:], other) {
		c.setIdle()
	}
	if h.unanswered != 0 {
		t.Errorf("%d answered bytes are still counted", h.unanswered)
	}
	if v := h.countUnanswered(other, maxUnanswered+1); v != other {
		t.Errorf("%v was closed, not the connection that has sent the most bytes", v)
	}
	for range 3 {
		busy[1].Close()
	}
	if h.unanswered != 0 {
		t.Errorf("%d bytes are left", h.unanswered)
	}
}

// TestReadsWithoutLock checks that a read from an authenticated or hijacked connection does not wait for the lock of the Listener.
func TestReadsWithoutLock(t *testing.T) {
	h := newHouse(t, 16)
	friend, exec, own := h.connect("192.0.2.11"), h.connect("192.0.2.12"), h.connect("127.0.0.1")
	friend.setAuthenticated()
	exec.setHijacked()
	h.Reserve(net.TCPAddrFromAddrPort(own.from))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range []*conn{friend, exec, own} {
		read := make(chan int, 1)
		go func() {
			n, _ := c.Read(make([]byte, 8))
			read <- n
		}()
		select {
		case n := <-read:
			if n != 8 {
				t.Errorf("%d bytes were read", n)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a read waits for the lock")
		}
	}
}

// headerBomb returns the beginning of a request with as many headers as fit into the given number of bytes.
func headerBomb(size int) string {
	var b strings.Builder
	b.WriteString("GET / HTTP/1.1\r\nHost: x\r\n")
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%s:\n", strings.ToLower(netip.AddrFrom4([4]byte{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}).String()))
	}
	return b.String()
}

// TestHeaderBombs checks that hundreds of clients with the longest accepted headers need little memory. Another client is served
// meanwhile.
func TestHeaderBombs(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 64 << 10
	hs := &http.Server{Handler: http.NotFoundHandler(), MaxHeaderBytes: most, ErrorLog: discardLog(), ReadHeaderTimeout: time.Minute}
	Watch(hs)
	go hs.Serve(Listen(ln, Config{PortName: "a test", MaxConnections: 256, Log: quiet}))
	defer hs.Close()
	before := live()
	bomb := headerBomb(most)
	ended := make(chan struct{}, 400)
	for i := range cap(ended) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%100))}}
		c, err := d.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		go func() {
			_, _ = io.WriteString(c, bomb)
			_, _ = io.Copy(io.Discard, c) // until the server closes the connection
			ended <- struct{}{}
		}()
	}
	for range cap(ended) - 3*maxUnanswered/most { // the other connections of a network are kept
		<-ended
	}
	if took := int64(live()) - int64(before) - int64(len(bomb)); took > 40<<20 {
		t.Errorf("%d MiB are held", took>>20)
	}
	resp, err := http.Get("http://" + ln.Addr().String())
	if err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("a client that asks for something: %v, %v", resp, err)
	}
}

func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
