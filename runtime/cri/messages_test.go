package cri_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// A brokenRuntime is a runtime that cannot create containers.
type brokenRuntime struct {
	api.UnimplementedRuntimeServiceServer
	err error
}

func (b *brokenRuntime) CreateContainer(context.Context, *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	return nil, b.err
}

// TestMessagesOfARuntime checks that an error of a remote runtime contains only the message of the runtime, as a container status of a
// kubelet does. The kind of the error stays the same.
func TestMessagesOfARuntime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s, b := grpc.NewServer(), &brokenRuntime{}
	api.RegisterRuntimeServiceServer(s, b)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	c, err := cri.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for _, tt := range []struct {
		code          codes.Code
		message, want string
		is            func(error) bool
	}{
		{codes.Unknown, "no such shim", "no such shim", errdefs.IsUnknown},
		{codes.NotFound, "image is gone", "image is gone", errdefs.IsNotFound},
		{codes.Unknown, "create the task: rpc error: code = Internal desc = full", "create the task: rpc error: code = Internal desc = full",
			errdefs.IsUnknown},
	} {
		b.err = status.Error(tt.code, tt.message)
		_, err := c.CreateContainer(t.Context(), &api.CreateContainerRequest{})
		if err == nil || err.Error() != tt.want || !tt.is(err) {
			t.Errorf("%s %q: %v", tt.code, tt.message, err)
		}
	}
}
