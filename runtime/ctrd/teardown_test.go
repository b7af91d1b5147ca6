package ctrd_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestTeardownOnce checks that the end of a pod removes its network once, although the agent stops the sandbox before it removes it, and
// the removal stops it again. The network is removed again in three cases, in which something may be left: after a failure; by the next
// agent; and if a sandbox was started again under the same ID.
func TestTeardownOnce(t *testing.T) {
	n := newNode(t, 0)
	ctx := context.Background()
	remove := func(id string) {
		t.Helper()
		if _, err := n.RemovePodSandbox(ctx, &api.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Error(err)
		}
	}
	check := func(what string, want int) {
		t.Helper()
		if got := n.network.takeTeardowns(); got != want {
			t.Errorf("%s: the network was removed %d times, want %d", what, got, want)
		}
	}

	id, _ := n.runPod(t, 0, "wait")
	n.stopPod(t, id)
	n.stopPod(t, id)
	remove(id)
	check("stopped twice and removed", 1)

	id, _ = n.runPod(t, 1, "wait")
	n.network.setBroken(errors.New("busy"))
	if _, err := n.StopPodSandbox(ctx, &api.StopPodSandboxRequest{PodSandboxId: id}); err == nil {
		t.Error("no error of the network")
	}
	n.network.setBroken(nil)
	remove(id)
	check("failed once", 2)

	id, _ = n.runPod(t, 2, "wait")
	n.stopPod(t, id)
	n.network.setBroken(errors.New("busy"))
	if _, err := n.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Config: n.podConfig(2)}); err == nil {
		t.Error("no error of the network")
	}
	n.network.setBroken(nil)
	remove(id)
	check("started again under the same ID", 3)

	id, _ = n.runPod(t, 3, "wait")
	n.stopPod(t, id)
	n.stop(t)
	n.start(t)
	remove(id)
	check("a new agent", 2)
	if left := n.network.left(); len(left) > 0 {
		t.Errorf("networks are left: %v", left)
	}
}

// TestPodWatcher checks that WatchPods passes the UID of each change that Subscribe passes.
func TestPodWatcher(t *testing.T) {
	n := newNode(t, 0)
	var mu sync.Mutex
	var pods, events []string
	defer n.Subscribe(func(e *api.ContainerEventResponse) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e.GetPodSandboxStatus().GetMetadata().GetUid())
	})()
	end := n.WatchPods(func(uid string) {
		mu.Lock()
		defer mu.Unlock()
		pods = append(pods, uid)
	})
	id, _ := n.runPod(t, 0, "wait")
	n.stopPod(t, id)
	if _, err := n.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Error(err)
	}
	mu.Lock()
	const all = 8 // created, started, stopped and deleted, of the sandbox and of the container
	if len(pods) != all || !slices.Equal(pods, events) || pods[0] != n.podConfig(0).GetMetadata().GetUid() {
		t.Errorf("pods %v, events of %v", pods, events)
	}
	mu.Unlock()
	end()
	n.runPod(t, 1, "wait")
	mu.Lock()
	defer mu.Unlock()
	if len(pods) != all || len(events) == all {
		t.Errorf("after the end of the subscription: %d and %d events", len(pods), len(events))
	}
}
