package engine

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/runtime/cri"
)

// A late is a runtime that processes the end of a pod late. Until then, it returns an error when the pod is removed.
type late struct {
	cri.Runtime
	heard   time.Time
	removed int
}

func (l *late) ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	return &api.ListContainersResponse{}, nil
}

func (l *late) StopPodSandbox(context.Context, *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	return &api.StopPodSandboxResponse{}, nil
}

func (l *late) RemovePodSandbox(context.Context, *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	if time.Now().Before(l.heard) {
		return nil, errors.New("container is still running, to fix it, run StopContainer first")
	}
	l.removed++
	return &api.RemovePodSandboxResponse{}, nil
}

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "engine")) }

// TestMoved checks that a change of the runtime records one event. The event names the new runtime and the objects that remain in the old
// one.
func TestMoved(t *testing.T) {
	told := 0
	c := Config{Config: &config.Config{}, Log: slog.New(slog.DiscardHandler), RecordEvent: func(warning bool, reason, message string) {
		told++
		if warning {
			t.Error("the event is a warning")
		}
		eventtest.RecordEvent(v1.EventTypeNormal, reason, message)
	}}
	c.RuntimeEndpoint = "unix:///run/other.sock"
	c.reportMove("", "Islet's own runtime keeps 2 images.")
	if told != 1 {
		t.Errorf("%d events", told)
	}
}

// TestLateEnd checks that a pod is removed even if the runtime processes the end of the pod late. If the runtime never removes the pod,
// endPod returns an error.
func TestLateEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &api.PodSandbox{Id: "s", Metadata: &api.PodSandboxMetadata{Name: "p", Namespace: "n"}}
		rt := &late{heard: time.Now().Add(3 * time.Second)}
		if err := endPod(t.Context(), rt, s); err != nil || rt.removed != 1 {
			t.Errorf("%v, removed %d times", err, rt.removed)
		}
		rt = &late{heard: time.Now().Add(time.Hour)}
		began := time.Now()
		if err := endPod(t.Context(), rt, s); err == nil || time.Since(began) > time.Minute {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := endPod(stopped, rt, s); err == nil {
			t.Error("the pod was removed")
		}
	})
}
