package call

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/islet-edge/islet/internal/grpcwait"
)

// windowSize is the flow-control window of a gRPC connection. It is the smallest that gRPC accepts.
const windowSize = 64 << 10

// Check reports whether a service of the server is serving, by the gRPC health checking protocol. If it is not, the
// error contains the reason. A timeout of 0 means that only ctx limits the call.
func (c *Caller) Check(ctx context.Context, t Target, a *v1.GRPCAction, timeout time.Duration) error {
	address, err := t.Address("", intstr.FromInt32(a.Port))
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(c.grpcCredentials(a)), grpc.WithUserAgent(c.userAgent(Probe)),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { // without a proxy
			return newDialer().DialContext(ctx, "tcp", address)
		}),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10), grpc.WithInitialWindowSize(windowSize),
		grpc.WithInitialConnWindowSize(windowSize),
		grpc.WithMaxHeaderListSize(maxHeader), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxOutput)),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry())
	if err != nil {
		return &markedError{err, ErrInvalid}
	}
	defer conn.Close()
	ctx, stop := withTimeout(ctx, timeout)
	defer stop()
	if err := waitReady(ctx, conn); err != nil {
		return fmt.Errorf("timeout: failed to connect service %q within %v: %w", address, timeout, err)
	}
	var service string
	if a.Service != nil {
		service = *a.Service
	}
	answer, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: service})
	switch s, _ := status.FromError(err); {
	case err == nil && answer.GetStatus() == health.HealthCheckResponse_SERVING:
		return nil
	case err == nil:
		return fmt.Errorf("service unhealthy (responded with %q)", answer.GetStatus().String())
	case s.Code() == codes.Unimplemented:
		return fmt.Errorf("error: this server does not implement the grpc health protocol (grpc.health.v1.Health): %s", s.Message())
	case s.Code() == codes.DeadlineExceeded:
		return fmt.Errorf("timeout: health rpc did not complete within %v", timeout)
	default:
		return fmt.Errorf("error: health rpc probe failed: %w", err)
	}
}

// grpcCredentials returns the credentials for a call in the action's mode. As for HTTPS, the certificate is not verified.
func (c *Caller) grpcCredentials(a *v1.GRPCAction) credentials.TransportCredentials {
	if a.Mode != nil && *a.Mode == v1.GRPCProbeModeTLS && c.GateEnabled("GRPCContainerProbeTLS") {
		return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	return insecure.NewCredentials()
}

// waitReady connects until the gRPC connection is ready or ctx ends. If an attempt fails, it tries again.
func waitReady(ctx context.Context, conn *grpc.ClientConn) error {
	for {
		conn.Connect()
		s := conn.GetState()
		if s == connectivity.Ready {
			return nil
		}
		if !grpcwait.Change(ctx, conn, s) {
			return ctx.Err()
		}
	}
}
