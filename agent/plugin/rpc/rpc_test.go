package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/islet-edge/islet/internal/socket"
)

// TestServer checks that the server responds to calls after it closed a maximum of idle connections. It rejects calls beyond the rate
// limit. Only root can access the socket.
func TestServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "s.sock")
	for range 2 {
		s, err := Listen(path, socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}))
		if err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != 0o600 {
			t.Fatal(fi, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx, Reject, func(g *grpc.Server) { healthpb.RegisterHealthServer(g, health.NewServer()) })
		}()
		var crowd []net.Conn
		for range maxConnections {
			c, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			crowd = append(crowd, c)
		}
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range crowd {
			c.Close()
		}
		client, refused := healthpb.NewHealthClient(conn), 0
		for range 200 {
			switch _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); status.Code(err) {
			case codes.OK:
			case codes.ResourceExhausted:
				refused++
			default:
				t.Fatal(err)
			}
		}
		if refused == 200 {
			t.Error("no call succeeded")
		}
		conn.Close()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestRate checks that calls and streams share one rate limit.
func TestRate(t *testing.T) {
	limit := limiter{rate.NewLimiter(0, 2), Reject}
	call, stream := limitCalls(limit), limitStreams(limit)
	do := func() (codes.Code, codes.Code) {
		_, err := call(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, nil })
		streamed := stream(nil, streamOf{ctx: t.Context()}, nil, func(any, grpc.ServerStream) error { return nil })
		return status.Code(err), status.Code(streamed)
	}
	if a, b := do(); a != codes.OK || b != codes.OK {
		t.Errorf("within the limit: %s, %s", a, b)
	}
	if a, b := do(); a != codes.ResourceExhausted || b != codes.ResourceExhausted {
		t.Errorf("beyond the limit: %s, %s", a, b)
	}
}

type streamOf struct {
	grpc.ServerStream
	ctx context.Context
}

func (s streamOf) Context() context.Context { return s.ctx }

// TestDelay checks that calls and streams beyond the limit wait with Delay. A call is rejected if its context ends before.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := limiter{rate.NewLimiter(100, 10), Delay}
		call, stream := limitCalls(limit), limitStreams(limit)
		began := time.Now()
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				_, err := call(t.Context(), nil, nil, func(context.Context, any) (any, error) { return nil, nil })
				if err = errors.Join(err, stream(nil, streamOf{ctx: t.Context()}, nil, func(any, grpc.ServerStream) error { return nil })); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(began); took < 1890*time.Millisecond || took > 2*time.Second {
			t.Errorf("200 calls took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := call(ctx, nil, nil, func(context.Context, any) (any, error) { return nil, nil })
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a call without time: %v", err)
		}
	})
}

// TestEnd checks that no client is served after Run has returned. Run returns when its context ends or when Close is called.
func TestEnd(t *testing.T) {
	for _, asked := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "s.sock")
		s, err := Listen(path, socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx, Reject, func(g *grpc.Server) { healthpb.RegisterHealthServer(g, health.NewServer()) })
		}()
		conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(), &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		if asked {
			stop()
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; (err == nil) != asked {
			t.Error(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = watch.Recv()
		}()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Errorf("context ended %t: a client is still served", asked)
		}
	}
}

// TestUnused checks that Run returns if the server has no connections.
func TestUnused(t *testing.T) {
	s, err := Listen(filepath.Join(t.TempDir(), "s.sock"), socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Run(ctx, Reject, func(*grpc.Server) { t.Error("a server was made") }); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestBombs checks that a request is rejected before it is stored if its message is too long or it has too many headers.
func TestBombs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	s, err := Listen(path, socket.New(socket.Config{Log: slog.New(slog.DiscardHandler)}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, Reject, func(g *grpc.Server) { healthpb.RegisterHealthServer(g, health.NewServer()) })
	}()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client := healthpb.NewHealthClient(conn)
	long := &healthpb.HealthCheckRequest{Service: strings.Repeat("x", 2*maxRequest)}
	if _, err := client.Check(ctx, long, grpc.WaitForReady(true)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a long request: %v", err)
	}
	if _, err := client.Check(ctx, long, grpc.UseCompressor(gzip.Name)); status.Code(err) != codes.Unimplemented &&
		status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a compressed one: %v", err)
	}
	var headers []string
	for i := range 2000 {
		headers = append(headers, fmt.Sprint("x-", i), "y")
	}
	if _, err := client.Check(metadata.AppendToOutgoingContext(ctx, headers...), &healthpb.HealthCheckRequest{}); err == nil {
		t.Error("a request with 2000 headers is accepted")
	}
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Errorf("a good request after them: %v", err)
	}
	conn.Close()
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
