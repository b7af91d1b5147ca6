package grpcwait_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/islet-edge/islet/internal/grpcwait"
)

// TestIdleAgain checks a connection that has become Idle again before the wait for a change begins. Change connects again.
func TestIdleAgain(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hangUp := func() bool {
		c, err := l.Accept()
		if err != nil {
			return false
		}
		_, _ = c.Write([]byte{0, 0, 0, 4, 0, 0, 0, 0, 0}) // SETTINGS of HTTP/2: gRPC takes the server as ready
		_, _ = io.ReadFull(c, make([]byte, 24+9))         // the preface and the head of the SETTINGS of the client
		c.Close()
		return true
	}
	conn, err := grpc.NewClient("unix://"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s := conn.GetState()
	if s != connectivity.Idle {
		t.Fatal(s)
	}
	conn.Connect()
	hangUp()
	for now := conn.GetState(); now != connectivity.Idle; now = conn.GetState() {
		conn.WaitForStateChange(t.Context(), now)
	}
	go func() {
		for hangUp() {
		}
	}()
	if !grpcwait.Change(t.Context(), conn, s) {
		t.Error("no change")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for grpcwait.Change(ctx, conn, conn.GetState()) { // returns false at last, when the state has not changed before the call
	}
}
