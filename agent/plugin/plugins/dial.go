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

	"github.com/islet-edge/islet/internal/weight/codec"
)

// Bounds of a connection to a plugin.
const (
	maxAnswer  = 4 << 20  // of one message, as gRPC has it by default
	maxMemory  = 12 << 20 // of one message once it is decoded
	maxHeaders = 16 << 10 // with the text of an error
	window     = 64 << 10 // what may be sent ahead, the least that gRPC knows
	buffer     = 4 << 10
	// idle is how long a connection that nobody uses stays.
	idle = 10 * time.Second
	// handshake is how long a plugin may take to speak gRPC once it was connected to, as in a
	// kubelet: behind a socket may be a proxy, and a machine that is busy.
	handshake = 20 * time.Second
)

// Dial makes a connection to the socket at a path. It connects when it is used first, again
// after the plugin has restarted, and is not kept while nobody uses it. It bounds the size
// of what the plugin answers, and of what all plugins answer at a time; the time of a call is
// its context's.
func Dial(path string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) { // and by no proxy
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	conn, err := grpc.NewClient("passthrough:///"+path, append(append(codec.Client(maxAnswer, maxMemory, dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}, MinConnectTimeout: handshake}),
		grpc.WithReadBufferSize(buffer), grpc.WithWriteBufferSize(buffer), grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithMaxHeaderListSize(maxHeaders), grpc.WithIdleTimeout(idle), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	), more...)...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", path, err)
	}
	return conn, nil
}

// Ready connects, again and again, until the plugin has spoken gRPC or ctx ends. While
// nobody listens it gives up at once: the socket may be left over.
func Ready(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		conn.Connect()
		s := conn.GetState()
		switch s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return fmt.Errorf("the connection is in %s", s)
		}
		if !conn.WaitForStateChange(ctx, s) {
			return ctx.Err()
		}
	}
}
