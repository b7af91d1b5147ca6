package cri

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/grpcwait"
	"github.com/islet-edge/islet/internal/inputweight/codec"
)

// A Client is a client of the runtime at a CRI socket. It implements Runtime, Images and Events.
// Its errors satisfy the functions of errdefs.
type Client struct {
	conn    *grpc.ClientConn
	runtime api.RuntimeServiceClient
	images  api.ImageServiceClient
}

// Options configures a Client.
type Options struct {
	// Intercept, if not nil, is called for each unary call. It must call the function next, which
	// sends the request.
	Intercept func(ctx context.Context, method string, req any, next func(context.Context) error) error
	// FailFast makes calls fail with Unavailable while nothing is listening at the endpoint.
	FailFast bool
}

// Limits of a response of the runtime. The maximum of its encoded size is maxMessage.
const (
	maxAnswer  = 32 << 20  // memory of a decoded message, in bytes
	maxHeaders = 256 << 10 // in bytes, including an error message
)

// redialDelay is the maximum delay between attempts to connect.
const redialDelay = 2 * time.Second

// Dial returns a client of the runtime at endpoint, which is a path or a unix:// URL. It does not
// connect. A call waits for the connection until its context ends.
func Dial(endpoint string) (*Client, error) { return DialWith(endpoint, Options{}) }

// DialWith is like Dial, but with options.
func DialWith(endpoint string, o Options) (*Client, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("runtime endpoint %q: it must be the absolute path of a unix socket", endpoint)
	}
	if o.Intercept == nil {
		o.Intercept = func(ctx context.Context, _ string, _ any, next func(context.Context) error) error { return next(ctx) }
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	params := grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: redialDelay / 10, Multiplier: 2, Jitter: 0.2, MaxDelay: redialDelay},
		MinConnectTimeout: redialDelay,
	}
	around := func(
		ctx context.Context, method string, req, res any, c *grpc.ClientConn, call grpc.UnaryInvoker, os ...grpc.CallOption,
	) error {
		return o.Intercept(ctx, method, req, func(ctx context.Context) error {
			return errgrpc.ToNative(call(ctx, method, req, res, c, os...))
		})
	}
	conn, err := grpc.NewClient("passthrough:///"+path, append(codec.Client(maxMessage, maxAnswer, dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10), // fixed: disables automatic growth
		grpc.WithConnectParams(params),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(!o.FailFast), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithUnaryInterceptor(around))...)
	if err != nil {
		return nil, fmt.Errorf("runtime endpoint %q: %w", endpoint, err)
	}
	return &Client{conn: conn, runtime: api.NewRuntimeServiceClient(conn), images: api.NewImageServiceClient(conn)}, nil
}

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// AwaitChange connects if necessary. It returns when the connection is established or lost, or when
// ctx ends.
func (c *Client) AwaitChange(ctx context.Context) {
	grpcwait.Change(ctx, c.conn, c.conn.GetState())
}

// ContainerEvents calls the handler for each event of GetContainerEvents until ctx or the stream ends.
func (c *Client) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	s, err := c.runtime.GetContainerEvents(ctx, &api.GetEventsRequest{})
	for err == nil {
		var e *api.ContainerEventResponse
		if e, err = s.Recv(); err == nil {
			handle(e)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errgrpc.ToNative(err)
}
