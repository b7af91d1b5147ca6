package linger

import (
	"net"
	"testing"
	"time"

	"github.com/islet-edge/islet/internal/pulse/pulsetest"
)

// TestVanished checks that Close does not wait for a peer that no longer acknowledges data.
func TestVanished(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	theirs, err := pulsetest.Dial(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := pulsetest.CutLink(theirs); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Write([]byte("the end")); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { closeAfter(t.Context(), ours, 2*time.Second); close(closed) }()
	select {
	case <-closed:
	case <-time.After(2 * time.Minute): // the timeout of the kernel is 15 minutes
		t.Error("Close still waits for the peer")
	}
}
