package containers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// late is a runtime that refuses to remove a pod until it has heard of its end.
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

// TestLateEnd: a pod whose end the runtime hears of late is removed all the same; one that it
// never removes is an error in the end.
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
			t.Error("it was removed")
		}
	})
}
