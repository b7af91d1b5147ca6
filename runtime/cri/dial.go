package cri

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A Client is a runtime behind a CRI socket. It implements Runtime, Images and
// Events; errors satisfy errdefs as those of a runtime in this process do.
type Client struct {
	conn    *grpc.ClientConn
	runtime api.RuntimeServiceClient
	images  api.ImageServiceClient
}

// Dial makes a client of the runtime at endpoint, a path or unix:// URL. It does
// not wait for the runtime: calls do, as long as their context allows.
func Dial(endpoint string) (*Client, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("runtime endpoint %q: it must be the absolute path of a unix socket", endpoint)
	}
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, res any, c *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
			return errgrpc.ToNative(call(ctx, method, req, res, c, o...))
		}))
	if err != nil {
		return nil, fmt.Errorf("runtime endpoint %q: %w", endpoint, err)
	}
	return &Client{conn: conn, runtime: api.NewRuntimeServiceClient(conn), images: api.NewImageServiceClient(conn)}, nil
}

// Close hangs up.
func (c *Client) Close() error { return c.conn.Close() }

// ContainerEvents hands on the runtime's event stream until ctx or the stream ends.
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
