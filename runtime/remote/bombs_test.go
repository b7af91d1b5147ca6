package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/inputweight"
)

// A heavyRuntime is a runtime whose lists are small when encoded and large in memory.
type heavyRuntime struct {
	api.UnimplementedRuntimeServiceServer
	api.UnimplementedImageServiceServer
	containers []*api.Container
	event      *api.ContainerEventResponse
}

func (h *heavyRuntime) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return &api.ListContainersResponse{Containers: h.containers}, nil
}

func (h *heavyRuntime) Version(context.Context, *api.VersionRequest) (*api.VersionResponse, error) {
	return nil, errors.New(strings.Repeat("x", 8<<20))
}

func (h *heavyRuntime) ListImages(context.Context, *api.ListImagesRequest) (*api.ListImagesResponse, error) {
	return &api.ListImagesResponse{Images: slices.Repeat([]*api.Image{{}}, 300_000)}, nil
}

func (h *heavyRuntime) GetContainerEvents(_ *api.GetEventsRequest, to grpc.ServerStreamingServer[api.ContainerEventResponse]) error {
	return to.Send(h.event)
}

// TestHeavyAnswers checks a response or an event that is too large when decoded, and an error message that is too long. Only the call
// itself fails. A long list of ordinary containers is accepted.
func TestHeavyAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	h, s := &heavyRuntime{}, grpc.NewServer()
	api.RegisterRuntimeServiceServer(s, h)
	api.RegisterImageServiceServer(s, h)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	r, err := Open(Config{Endpoint: path, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	labels := map[string]string{}
	for i := range 400_000 {
		labels[strconv.Itoa(i)] = ""
	}
	ordinary := &api.Container{Id: strings.Repeat("0", 64), Labels: map[string]string{"io.kubernetes.pod.name": "web", "io.kubernetes.pod.uid": strings.Repeat("0", 36)}, Annotations: map[string]string{"a": strings.Repeat("x", 1000)}}
	for name, bomb := range map[string][]*api.Container{
		"many containers": slices.Repeat([]*api.Container{{}}, 400_000),
		"many labels":     {{Labels: labels}},
		"a long text":     {{ImageRef: strings.Repeat("x", 17<<20)}},
	} {
		h.containers = bomb
		if _, err := r.ListContainers(t.Context(), &api.ListContainersRequest{}); err == nil || !strings.Contains(err.Error(), inputweight.ErrTooHeavy.Error()) && !strings.Contains(err.Error(), "larger than max") {
			t.Errorf("%s: %v", name, err)
		}
		h.containers = slices.Repeat([]*api.Container{ordinary}, 3000)
		if got, err := r.ListContainers(t.Context(), &api.ListContainersRequest{}); err != nil || len(got.Containers) != 3000 {
			t.Errorf("%d ordinary containers after %s: %v", len(got.GetContainers()), name, err)
		}
	}
	if _, err := r.Images().ListImages(t.Context(), &api.ListImagesRequest{}); err == nil || !strings.Contains(err.Error(), inputweight.ErrTooHeavy.Error()) {
		t.Errorf("images: %v", err)
	}
	h.event = &api.ContainerEventResponse{ContainersStatuses: slices.Repeat([]*api.ContainerStatus{{}}, 300_000)}
	if err := r.Client.ContainerEvents(t.Context(), func(*api.ContainerEventResponse) { t.Error("the event was accepted") }); err == nil ||
		!strings.Contains(err.Error(), inputweight.ErrTooHeavy.Error()) {
		t.Errorf("events: %v", err)
	}
	if _, err = r.Version(t.Context(), &api.VersionRequest{}); err == nil || len(err.Error()) > 1<<20 {
		t.Errorf("the error has %d bytes", len(fmt.Sprint(err)))
	}
}
