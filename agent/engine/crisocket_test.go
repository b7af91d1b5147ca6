package engine

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/socket"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/fake"
)

// streamer is a fake runtime that also implements cri.Streamer. The CRI server requires this interface.
type streamer struct {
	*fake.Runtime
	cri.Streamer
}

// TestCRISocket checks that the socket serves requests, and that only root can connect to it. Its file is removed when the server stops.
func TestCRISocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	rt := fake.New("demo:1", "spare:1")
	needed := func(_ context.Context, ref string) (string, error) {
		return map[string]string{"demo:1": "pod default/web"}[ref], nil
	}
	log := slog.New(slog.DiscardHandler)
	if s, err := OpenSocket("", streamer{Runtime: rt}, rt, needed, socket.New(socket.Config{Log: log})); s != nil || err != nil {
		t.Fatalf("without a path: %v, %v", s, err)
	}
	s, err := OpenSocket(path, streamer{Runtime: rt}, rt, needed, socket.New(socket.Config{Log: log}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	c, err := cri.Dial("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v, err := c.Version(ctx, &api.VersionRequest{}); err != nil || v.RuntimeApiVersion != "v1" {
		t.Errorf("version: %v, %v", v, err)
	}
	if _, err := c.RemoveImage(ctx, &api.RemoveImageRequest{Image: &api.ImageSpec{Image: "demo:1"}}); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "pod default/web") {
		t.Errorf("remove an image that a pod needs: %v", err)
	}
	if _, err := c.RemoveImage(ctx, &api.RemoveImageRequest{Image: &api.ImageSpec{Image: "spare:1"}}); err != nil {
		t.Errorf("remove an unused image: %v", err)
	}
	end()
	if err := <-ended; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
}
