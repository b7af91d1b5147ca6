package worker

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (m *machine) addRead(call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads[call]++
}

func (m *machine) ListPodSandbox(ctx context.Context, r *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	m.addRead("ListPodSandbox")
	return m.Runtime.ListPodSandbox(ctx, r)
}

func (m *machine) ListContainers(ctx context.Context, r *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	m.addRead("ListContainers")
	return m.Runtime.ListContainers(ctx, r)
}

func (m *machine) PodSandboxStatus(ctx context.Context, r *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	m.addRead("PodSandboxStatus")
	return m.Runtime.PodSandboxStatus(ctx, r)
}

func (m *machine) ContainerStatus(ctx context.Context, r *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	m.addRead("ContainerStatus")
	return m.Runtime.ContainerStatus(ctx, r)
}

// WatchPods implements cri.PodWatcher, as islet's own runtime does.
func (m *machine) WatchPods(handle func(uid string)) (end func()) {
	return m.Subscribe(func(e *api.ContainerEventResponse) { handle(e.GetPodSandboxStatus().GetMetadata().GetUid()) })
}

// takeCounts returns the numbers of rounds and of reads since its last call.
func (n *node) takeCounts() string {
	n.machine.mu.Lock()
	defer n.machine.mu.Unlock()
	r := n.machine.reads
	defer clear(r)
	return fmt.Sprintf("%d rounds, %d sandbox lists, %d container lists, %d sandbox statuses, %d container statuses",
		n.changed.Swap(0), r["ListPodSandbox"], r["ListContainers"], r["PodSandboxStatus"], r["ContainerStatus"])
}

// TestRoundsOfAPod counts the rounds of the worker and the reads of the runtime for the start and the end of a pod: one round and one read
// for each action. The agent must not react to the events of its own actions. Lower numbers are welcome, higher ones need a reason.
func TestRoundsOfAPod(t *testing.T) {
	m := newMachine("app:1")
	m.polite = true
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("first", Wanted{Pod: pod("first", v1.PullIfNotPresent)})
		n.takeCounts()
		p := pod("a", v1.PullIfNotPresent)
		n.setWish("a", Wanted{Pod: p})
		want := "4 rounds, 2 sandbox lists, 2 container lists, 1 sandbox statuses, 1 container statuses"
		if got := n.takeCounts(); got != want {
			t.Errorf("start: %s, want %s", got, want)
		}
		checkRunning(t, n, "a/c#0", "first/c#0")
		n.takeCounts()
		n.setWish("a", Wanted{Pod: p, Deleting: true})
		want = "5 rounds, 4 sandbox lists, 4 container lists, 1 sandbox statuses, 1 container statuses"
		if got := n.takeCounts(); got != want {
			t.Errorf("end: %s, want %s", got, want)
		}
		if _, ok := n.Get("a"); ok {
			t.Error("the pod was not removed")
		}
	})
}
