package remote

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/fake"
	"github.com/islet-edge/islet/runtime/stream"
)

// This type is a runtime with streams. Its commands end immediately. Its Attach sends each size of the terminal to a channel.
type terminals struct {
	*fake.Runtime
	cri.Streamer
	got chan cri.TerminalSize
}

func (f terminals) Stream(ctx context.Context, _ string, o cri.ExecOptions) error {
	if len(o.Command) > 0 {
		return nil
	}
	select {
	case s := <-o.Resize:
		f.got <- s
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (terminals) ContainerStatus(context.Context, *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	return &api.ContainerStatusResponse{Status: &api.ContainerStatus{State: api.ContainerState_CONTAINER_RUNNING}}, nil
}

// TestSizesAfterTheEnd checks that nothing is received from the Resize channel of a stream that has ended.
func TestSizesAfterTheEnd(t *testing.T) {
	rt, got := fake.New(), make(chan cri.TerminalSize, 1)
	served, err := stream.Wrap(terminals{Runtime: rt, got: got}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	go served.Run(t.Context())
	path := filepath.Join(t.TempDir(), "s")
	serve(t, path, served, rt)
	r := Streaming{open(t, path)}
	sizes := make(chan cri.TerminalSize)
	in, typing := io.Pipe()
	defer typing.Close()
	for range 10 {
		o := cri.ExecOptions{Command: []string{"true"}, TTY: true, Stdin: in, Stdout: typing, Resize: sizes}
		if err := r.Stream(t.Context(), "c", o); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case sizes <- cri.TerminalSize{Width: 1, Height: 1}:
		t.Fatal("an ended stream received a size")
	default:
	}
	next := make(chan error, 1)
	go func() {
		next <- r.Stream(t.Context(), "c", cri.ExecOptions{TTY: true, Stdin: in, Stdout: typing, Resize: sizes})
	}()
	sizes <- cri.TerminalSize{Width: 91, Height: 33}
	if err := <-next; err != nil {
		t.Fatal(err)
	}
	if s := <-got; s.Width != 91 || s.Height != 33 {
		t.Errorf("got %v", s)
	}
}
