package call

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

// A clinic is a health server. Its response depends on the service's name.
type clinic struct {
	health.UnimplementedHealthServer
	agents chan string
}

func (c clinic) Check(ctx context.Context, r *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	c.agents <- strings.Join(md["user-agent"], ",")
	switch r.Service {
	case "":
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
	case "ill":
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
	case "odd":
		return &health.HealthCheckResponse{Status: 99}, nil
	case "slow":
		return nil, status.FromContextError(context.DeadlineExceeded).Err()
	case "headers":
		for range 100 {
			grpc.SendHeader(ctx, metadata.Pairs("x", strings.Repeat("x", 8<<10)))
			grpc.SetTrailer(ctx, metadata.Pairs("x", strings.Repeat("x", 8<<10)))
		}
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
	}
	return nil, status.Error(codes.NotFound, "unknown service")
}

func serveGRPC(t *testing.T, register func(*grpc.Server)) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	return portOf(t, l.Addr().String()).IntVal
}

func check(t *testing.T, port int32, service string, timeout time.Duration) error {
	t.Helper()
	return New(Config{Version: "v1.36.3"}).Check(t.Context(), target(), &v1.GRPCAction{Port: port, Service: &service}, timeout)
}

func TestCheck(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	c := clinic{agents: make(chan string, 10)}
	port := serveGRPC(t, func(s *grpc.Server) { health.RegisterHealthServer(s, c) })
	for _, tt := range []struct {
		service, want string
	}{
		{"", ""},
		{"ill", `service unhealthy (responded with "NOT_SERVING")`},
		{"odd", `service unhealthy (responded with "99")`},
		{"none", "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service"},
		{"slow", "timeout: health rpc did not complete within 1m0s"},
		{"headers", "error: health rpc probe failed: rpc error: code = "},
	} {
		err := check(t, port, tt.service, long)
		if got := errorText(err); !strings.HasPrefix(got, tt.want) || (tt.want == "") != (err == nil) {
			t.Errorf("%s: %q, want %q", tt.service, got, tt.want)
		}
		if agent := <-c.agents; !strings.HasPrefix(agent, "kube-probe/1.36 ") {
			t.Errorf("asks as %q", agent)
		}
	}
	if err := New(Config{}).Check(t.Context(), target(), &v1.GRPCAction{Port: port}, 0); err != nil {
		t.Errorf("no service and no timeout: %v", err)
	}
	if err := New(Config{}).Check(t.Context(), target(), &v1.GRPCAction{}, long); !errors.Is(err, ErrInvalid) {
		t.Errorf("no port: %v", err)
	}
	other := serveGRPC(t, func(*grpc.Server) {})
	if err := check(t, other, "", long); !strings.HasPrefix(errorText(err),
		"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ") {
		t.Errorf("a server without the service: %v", err)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestFakeGRPCServers checks that a call to a server that does not speak gRPC correctly costs at most the timeout.
func TestFakeGRPCServers(t *testing.T) {
	frame := func(kind byte, length int) string {
		b := binary.BigEndian.AppendUint32(nil, uint32(length)<<8)
		b[3] = kind
		return string(b) + "\x00\x00\x00\x00\x00"
	}
	for name, serve := range map[string]func(net.Conn){
		"silent":        readUntilClosed,
		"hangs up":      func(net.Conn) {},
		"HTTP/1":        func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n"); readUntilClosed(c) },
		"garbage":       func(c net.Conn) { io.WriteString(c, strings.Repeat("\xff", 64<<10)); readUntilClosed(c) },
		"a huge frame":  func(c net.Conn) { io.WriteString(c, frame(4, 1<<23)+strings.Repeat("x", 64<<10)); readUntilClosed(c) },
		"only settings": func(c net.Conn) { io.WriteString(c, frame(4, 0)); readUntilClosed(c) },
		"endless settings": func(c net.Conn) {
			for _, err := io.WriteString(c, frame(4, 0)); err == nil; _, err = io.WriteString(c, frame(4, 0)) {
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			port := serveRaw(t, serve)
			if err := check(t, port.IntVal, "", shortTimeout); !strings.HasPrefix(errorText(err), "timeout: ") &&
				!strings.HasPrefix(errorText(err), "error: ") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestCheckWaits checks that a call succeeds if the server starts during the call.
func TestCheckWaits(t *testing.T) {
	first := make(chan struct{}, 1)
	c := clinic{agents: make(chan string, 10)}
	l := &fickle{refuse: 1, first: first}
	var err error
	if l.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	health.RegisterHealthServer(s, c)
	go s.Serve(l)
	defer s.Stop()
	if err := check(t, portOf(t, l.Addr().String()).IntVal, "", long); err != nil {
		t.Error(err)
	}
	<-first
}

// A fickle listener closes the first connections.
type fickle struct {
	net.Listener
	refuse int
	first  chan struct{}
}

func (f *fickle) Accept() (net.Conn, error) {
	for {
		c, err := f.Listener.Accept()
		if err != nil || f.refuse == 0 {
			return c, err
		}
		f.refuse--
		c.Close()
		f.first <- struct{}{}
	}
}
