package linger_test

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"bytes"

	"github.com/islet-edge/islet/runtime/stream/linger"
)

// pair returns the two ends of a connection.
func pair(t *testing.T, network, address string) (ours, theirs net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if theirs, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if ours, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

// TestUnread checks that a peer receives all bytes, although the peer starts to read only seconds after Close was called. The data that the
// peer itself has sent was not read.
func TestUnread(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		ours, theirs := pair(t, network, address)
		want := make([]byte, 100<<10)
		rand.Read(want)
		if _, err := ours.Write(want); err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Write([]byte("nobody reads this")); err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() { linger.Close(context.Background(), ours); close(closed) }()
		<-time.After(2 * time.Second)
		got, err := io.ReadAll(theirs)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d of %d bytes, %v", network, len(got), len(want), err)
		}
		theirs.Close()
		<-closed
	}
}

// TestGivenUp checks that Close returns after its context has ended, although the peer does not read.
func TestGivenUp(t *testing.T) {
	ours, _ := pair(t, "tcp", "127.0.0.1:0")
	ours.Write(make([]byte, 100<<10))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	linger.Close(ctx, ours)
	if time.Since(began) > 20*time.Second {
		t.Errorf("closed after %s", time.Since(began))
	}
}
