package logs

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

// TestLoggedContainer checks which container and which attempt a log request selects. A waiting container's next attempt is not in its
// restart count yet.
func TestLoggedContainer(t *testing.T) {
	runs := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	waits := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	ended := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://now"}}
	last := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "containerd://last"}}
	for _, tt := range []struct {
		name        string
		state, last v1.ContainerState
		previous    bool
		id          string
		attempt     int32
	}{
		{"running", runs, last, false, "now", 3},
		{"before the running one", runs, last, true, "last", 2},
		{"ended", ended, last, false, "now", 3},
		{"before the ended one", ended, last, true, "last", 2},
		{"waiting for its restart", waits, last, false, "last", 3},
		{"before a restart", waits, last, true, "last", 3},
		{"waiting for its first start", waits, v1.ContainerState{}, false, "", 0},
	} {
		pod := podtest.New("p")
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", ContainerID: "containerd://now", RestartCount: 3, State: tt.state,
			LastTerminationState: tt.last}}
		id, attempt, err := loggedContainer(pod, "c", tt.previous)
		if id != tt.id || attempt != tt.attempt || (err != nil) != (tt.id == "") {
			t.Errorf("%s: container %q, attempt %d (%v), want %q, %d", tt.name, id, attempt, err, tt.id, tt.attempt)
		}
	}
}
