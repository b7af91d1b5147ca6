package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/hook"
	"github.com/islet-edge/islet/agent/pod/plan"
)

// UpdateContainerResources records the calls in their order.
func (m *machine) UpdateContainerResources(ctx context.Context,
	r *api.UpdateContainerResourcesRequest) (*api.UpdateContainerResourcesResponse, error) {
	out, err := m.Runtime.UpdateContainerResources(ctx, r)
	if err == nil {
		m.note(fmt.Sprintf("%s %d", m.nameOf(ctx, r.ContainerId), r.Linux.MemoryLimitInBytes>>20))
	}
	return out, err
}

func (m *machine) ContainerStats(ctx context.Context, r *api.ContainerStatsRequest) (*api.ContainerStatsResponse, error) {
	name := m.nameOf(ctx, r.ContainerId)
	m.mu.Lock()
	used := m.usage[name]
	m.mu.Unlock()
	return &api.ContainerStatsResponse{Stats: &api.ContainerStats{Memory: &api.MemoryUsage{UsageBytes: &api.UInt64Value{Value: used}}}}, nil
}

func (m *machine) nameOf(ctx context.Context, id string) string {
	st, err := m.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return err.Error()
	}
	return st.Status.Metadata.Name
}

func (m *machine) note(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.updated = append(m.updated, what)
}

func (m *machine) did(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.updated, want) {
		t.Errorf("resizes %q, not %q", m.updated, want)
	}
	m.updated = nil
}

// podCgroup is a hook that fakes the pod's cgroup.
type podCgroup struct {
	m    *machine
	fail error // protected by m.mu
}

func (podCgroup) Name() string { return "whole" }

func (w *podCgroup) Grow(context.Context, *v1.Pod) error {
	w.m.note("grow")
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	return w.fail
}

func (w *podCgroup) Shrink(context.Context, *v1.Pod) error {
	w.m.note("shrink")
	return nil
}

// sizedPod returns a pod with one container for each memory limit in MiB. The containers are named c, d and so on.
func sizedPod(mebibytes ...int64) *v1.Pod {
	p := pod("a", "")
	ctr := p.Spec.Containers[0]
	p.Spec.Containers = nil
	p.Spec.TerminationGracePeriodSeconds = new(int64(1))
	for i, m := range mebibytes {
		ctr.Name = string(rune('c' + i))
		ctr.Resources.Limits = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(m<<20, resource.BinarySI)}
		p.Spec.Containers = append(p.Spec.Containers, ctr)
	}
	return p
}

// TestResize checks that running containers are resized once. The resize grows the pod's cgroup first, then resizes the containers, and
// shrinks the cgroup last. A restarted agent checks the sizes once more.
func TestResize(t *testing.T) {
	m := newMachine("app:1")
	bubble(t, m, func(t *testing.T, n *node) {
		n.hooks = hook.Chain{&podCgroup{m: m}}
		n.stop()
		n.start(t)
		n.setWish("a", Wanted{Pod: sizedPod(10, 20)})
		checkRunning(t, n, "a/c#0", "a/d#0")
		m.did(t)
		n.setWish("a", Wanted{Pod: sizedPod(15, 12)})
		m.did(t, "grow", "d 12", "c 15", "shrink")
		time.Sleep(time.Hour)
		m.did(t)
		n.stop()
		n.wishes.pods["a"] = Wanted{Pod: sizedPod(15, 30)}
		n.start(t)
		m.did(t, "grow", "d 30", "shrink")
		n.stop()
		n.start(t) // the agent does not know the previous agent's result
		m.did(t, "grow", "shrink")
		n.setWish("a", Wanted{Pod: otherPod("", "app:1")})
		time.Sleep(time.Hour)
		m.did(t)
	})
}

// TestResizeBelowUsage checks that a container's memory limit is not set below its usage. The resize is retried later. Other resources are
// set at once.
func TestResizeBelowUsage(t *testing.T) {
	m := newMachine("app:1")
	m.usage = map[string]uint64{"c": 8 << 20, "d": 9 << 20}
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: sizedPod(10, 20)})
		checkRunning(t, n, "a/c#0", "a/d#0")
		n.setWish("a", Wanted{Pod: sizedPod(8, 9)})
		f := n.set.Input("a").Failed[plan.Key{Op: plan.Resize}]
		want := `cannot decrease memory limits: [attempting to set container "c" memory limit (8388608) below current usage (8388608), attempting to set container "d" memory limit (9437184) below current usage (9437184)]`
		if f.Message != want || !plan.ResizeInProgress(n.set.Input("a")) {
			t.Errorf("got %s", f.Message)
		}
		m.did(t)
		n.setWish("a", Wanted{Pod: sizedPod(9, 30)})
		m.did(t, "c 9", "d 30")
		n.setWish("a", Wanted{Pod: sizedPod(7, 30)})
		m.mu.Lock()
		m.usage["c"] = 1
		m.mu.Unlock()
		time.Sleep(time.Minute)
		m.did(t, "c 7")
		if in := n.set.Input("a"); plan.ResizeInProgress(in) || len(in.Failed) > 0 {
			t.Errorf("failed: %+v", in.Failed)
		}
	})
}

// TestResizeByRestart checks that a resize restarts a container at once if the resize policy requires it. The restart policy does not
// matter, and the agent may have been stopped when the resize was requested.
func TestResizeByRestart(t *testing.T) {
	anew := func(m int64) *v1.Pod {
		p := sizedPod(m)
		p.Spec.RestartPolicy = v1.RestartPolicyOnFailure
		p.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
		return p
	}
	m := newMachine("app:1")
	m.polite = true
	bubble(t, m, func(t *testing.T, n *node) {
		n.setWish("a", Wanted{Pod: anew(10)})
		checkRunning(t, n, "a/c#0")
		n.setWish("a", Wanted{Pod: anew(20)})
		checkRunning(t, n, "a/c#1")
		n.events.mu.Lock()
		told := slices.Clone(n.events.lines["a"])
		n.events.mu.Unlock()
		if !slices.ContainsFunc(told, func(s string) bool { return strings.Contains(s, "Container c resize requires restart") }) {
			t.Errorf("events: %q", told)
		}
		cpu := anew(20)
		cpu.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
		n.setWish("a", Wanted{Pod: cpu})
		checkRunning(t, n, "a/c#1")
		m.did(t, "c 20")
		n.stop()
		n.wishes.pods["a"] = Wanted{Pod: anew(30)}
		n.start(t)
		checkRunning(t, n, "a/c#2")
	})
}

// TestResizeFails checks that a failed resize is retried. If the runtime does not report the resources of a container, the agent sets them.
func TestResizeFails(t *testing.T) {
	m := newMachine("app:1")
	broken := &podCgroup{m: m, fail: errors.New("no cgroup")}
	bubble(t, m, func(t *testing.T, n *node) {
		n.hooks = hook.Chain{broken}
		n.stop()
		n.start(t)
		n.setWish("a", Wanted{Pod: sizedPod(10)})
		n.setWish("a", Wanted{Pod: sizedPod(20)})
		m.did(t, "grow")
		if f := n.set.Input("a").Failed[plan.Key{Op: plan.Resize}]; f.Message != "no cgroup" {
			t.Errorf("got %+v", f)
		}
		n.setWish("a", Wanted{Pod: sizedPod(10)}) // the agent does not know the current resources
		m.did(t, "grow")
		m.mu.Lock()
		broken.fail = nil
		m.mu.Unlock()
		time.Sleep(time.Minute)
		m.did(t, "grow", "shrink")
	})
}

// TestResizeOfRequests checks that a resize of the memory request alone changes the container and the pod's cgroup once, also if the
// pod as a whole keeps its request. The runtime does not report requests, so a restarted agent sets the resources of a resized pod once
// more. It does not report a resize in progress for that.
func TestResizeOfRequests(t *testing.T) {
	requesting := func(m int64, whole string) *v1.Pod {
		p := sizedPod(10)
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(m<<20, resource.BinarySI)}
		if whole != "" {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse(whole)}}
		}
		return p
	}
	for _, whole := range []string{"", "20Mi"} {
		m := newMachine("app:1")
		bubble(t, m, func(t *testing.T, n *node) {
			n.hooks = hook.Chain{&podCgroup{m: m}}
			n.stop()
			n.start(t)
			n.setWish("a", Wanted{Pod: requesting(4, whole)})
			checkRunning(t, n, "a/c#0")
			m.did(t)
			n.setWish("a", Wanted{Pod: requesting(8, whole)})
			m.did(t, "grow", "c 10", "shrink")
			n.setWish("a", Wanted{Pod: requesting(6, whole)})
			m.did(t, "grow", "c 10", "shrink")
			time.Sleep(time.Hour)
			m.did(t)
			n.stop()
			n.start(t)
			m.did(t, "grow", "c 10", "shrink")
			time.Sleep(time.Hour)
			m.did(t)
			n.stop()
			n.wishes.pods["a"] = Wanted{Pod: requesting(7, whole)}
			n.start(t)
			m.did(t, "grow", "c 10", "shrink")
			n.setWish("a", Wanted{Pod: requesting(4, whole)})
			m.did(t, "grow", "c 10", "shrink")
			n.stop()
			n.start(t) // the container has the request of its creation
			m.did(t)
			if in := n.set.Input("a"); plan.ResizeInProgress(in) {
				t.Errorf("a resize is in progress: %+v", in.Sized)
			}
			n.stop() // the last resize can have been interrupted before the runtime got the request of the creation
			n.wishes.pods["a"] = Wanted{Pod: requesting(4, whole), Resized: true}
			n.start(t)
			m.did(t, "grow", "c 10", "shrink")
			time.Sleep(time.Hour)
			m.did(t)
		})
	}
}
