package plugins

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/islet-edge/islet/internal/grpcwait"
	"github.com/islet-edge/islet/internal/inputweight/codec"
)

// Limits of a connection to a plugin.
const (
	maxAnswer  = 4 << 20  // maximum size of one message; gRPC's default
	maxMemory  = 12 << 20 // maximum memory of one decoded message
	maxHeaders = 16 << 10 // maximum size of headers, including the text of an error
	flowWindow = 64 << 10 // flow control window; gRPC's minimum
	buffer     = 4 << 10
	// idleTimeout is the time after which an unused connection is closed.
	idleTimeout = 10 * time.Second
	// handshake is the timeout of the HTTP/2 handshake, as in a kubelet. The handshake may be slow if the
	// socket belongs to a proxy or the machine is busy.
	handshake = 20 * time.Second
)

// Dial returns a gRPC connection to the socket at a path. The connection is established at the first call,
// and again after the plugin has restarted. It is closed after idleTimeout without calls. The size of one
// message, and the total size of the current messages of all plugins, are limited. The context of a call
// limits the duration of the call.
func Dial(path string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) { // without a proxy
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	conn, err := grpc.NewClient("passthrough:///"+path, append(append(codec.Client(maxAnswer, maxMemory, dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond,
			Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}, MinConnectTimeout: handshake}),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer),
		grpc.WithInitialWindowSize(flowWindow), grpc.WithInitialConnWindowSize(flowWindow),
		grpc.WithMaxHeaderListSize(maxHeaders), grpc.WithIdleTimeout(idleTimeout), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	), more...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", path, err)
	}
	return conn, nil
}

// WaitReady connects, and returns nil when the gRPC connection is ready. If nothing listens at the socket, for example
// because it is a leftover, it returns an error at once. It also returns an error when ctx ends.
func WaitReady(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		conn.Connect()
		s := conn.GetState()
		switch s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return fmt.Errorf("the connection is in %s", s)
		}
		if !grpcwait.Change(ctx, conn, s) {
			return ctx.Err()
		}
	}
}
