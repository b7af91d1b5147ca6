package crisuite

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

func testStatus(t *testing.T, b *bench) {
	v := must(b.Runtime.Version(b.ctx, &api.VersionRequest{}))(b)
	if v.RuntimeName == "" || v.RuntimeApiVersion != "v1" {
		t.Errorf("version: %v", v)
	}
	if c := must(b.Runtime.RuntimeConfig(b.ctx, &api.RuntimeConfigRequest{}))(b); c.Linux == nil {
		t.Errorf("no cgroup driver is reported: %v", c)
	}
	cidrs := &api.RuntimeConfig{NetworkConfig: &api.NetworkConfig{PodCidr: "10.88.0.0/24,fd00::/64"}}
	must(b.Runtime.UpdateRuntimeConfig(b.ctx, &api.UpdateRuntimeConfigRequest{RuntimeConfig: cidrs}))(b)
	st := must(b.Runtime.Status(b.ctx, &api.StatusRequest{Verbose: true}))(b)
	if b.Kernel && !slices.ContainsFunc(st.RuntimeHandlers, func(h *api.RuntimeHandler) bool { return h.Name == "" && h.Features != nil }) {
		t.Errorf("no default handler among %v", st.RuntimeHandlers)
	}
	for _, want := range []string{"RuntimeReady", "NetworkReady"} {
		if !slices.ContainsFunc(st.Status.Conditions, func(c *api.RuntimeCondition) bool { return c.Type == want && c.Status }) {
			t.Errorf("condition %s is not true: %v", want, st.Status.Conditions)
		}
	}
}

func testSandboxLife(t *testing.T, b *bench) {
	cfg := b.podConfig()
	id := b.runPod(cfg)
	if again := b.runPod(cfg); again != id {
		t.Errorf("run twice: the IDs are %s and %s", id, again)
	}
	st := must(b.Runtime.PodSandboxStatus(b.ctx, &api.PodSandboxStatusRequest{PodSandboxId: id}))(b).Status
	if st.State != api.PodSandboxState_SANDBOX_READY || st.Metadata.Uid != b.uid || st.Annotations["note"] != "kept verbatim" ||
		st.CreatedAt == 0 {
		t.Errorf("status: %v", st)
	}
	for range 2 {
		must(b.Runtime.StopPodSandbox(b.ctx, &api.StopPodSandboxRequest{PodSandboxId: id}))(b)
	}
	st = must(b.Runtime.PodSandboxStatus(b.ctx, &api.PodSandboxStatusRequest{PodSandboxId: id}))(b).Status
	if st.State != api.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("stopped, but its state is %v", st.State)
	}
	for range 2 {
		must(b.Runtime.RemovePodSandbox(b.ctx, &api.RemovePodSandboxRequest{PodSandboxId: id}))(b)
	}
	if _, err := b.Runtime.PodSandboxStatus(b.ctx, &api.PodSandboxStatusRequest{PodSandboxId: id}); !errdefs.IsNotFound(err) {
		t.Errorf("the status of a removed object: %v", err)
	}
}

func testSandboxFilter(t *testing.T, b *bench) {
	one := b.runPod(b.podConfig())
	two := b.runPod(b.podConfig(func(c *api.PodSandboxConfig) { c.Metadata.Attempt = 1 }))
	must(b.Runtime.StopPodSandbox(b.ctx, &api.StopPodSandboxRequest{PodSandboxId: one}))(b)
	mine := map[string]string{"test": b.uid}
	ready := &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY}
	for name, c := range map[string]struct {
		filter *api.PodSandboxFilter
		want   []string
	}{
		"label":       {&api.PodSandboxFilter{LabelSelector: mine}, []string{one, two}},
		"state":       {&api.PodSandboxFilter{LabelSelector: mine, State: ready}, []string{two}},
		"id":          {&api.PodSandboxFilter{Id: one}, []string{one}},
		"other label": {&api.PodSandboxFilter{LabelSelector: map[string]string{"test": b.uid + "x"}}, nil},
	} {
		list := must(b.Runtime.ListPodSandbox(b.ctx, &api.ListPodSandboxRequest{Filter: c.filter}))(b)
		var got []string
		for _, s := range list.Items {
			got = append(got, s.Id)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func testContainerLife(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "wait")
	id := b.create(pod, cfg, c)
	if again := b.create(pod, cfg, c); again != id {
		t.Errorf("created twice: %s and %s", id, again)
	}
	if st := b.status(id); st.State != api.ContainerState_CONTAINER_CREATED || st.CreatedAt == 0 || st.StartedAt != 0 {
		t.Errorf("created: %v", st)
	}
	for range 2 {
		b.start(id)
	}
	if st := b.status(id); st.State != api.ContainerState_CONTAINER_RUNNING || st.StartedAt == 0 ||
		st.Annotations["note"] != "kept verbatim" || st.ImageRef == "" {
		t.Errorf("started: %v", st)
	}
	for range 2 {
		must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id, Timeout: 10}))(b)
	}
	if st := b.status(id); st.State != api.ContainerState_CONTAINER_EXITED || st.FinishedAt < st.StartedAt || st.Reason == "" {
		t.Errorf("stopped: %v", st)
	}
	for range 2 {
		must(b.Runtime.RemoveContainer(b.ctx, &api.RemoveContainerRequest{ContainerId: id}))(b)
	}
	if _, err := b.Runtime.ContainerStatus(b.ctx, &api.ContainerStatusRequest{ContainerId: id}); !errdefs.IsNotFound(err) {
		t.Errorf("the status of a removed object: %v", err)
	}
}

func testContainerFilter(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	one, two := b.create(pod, cfg, b.containerConfig("one", "wait")), b.create(pod, cfg, b.containerConfig("two", "wait"))
	b.start(two)
	running := &api.ContainerStateValue{State: api.ContainerState_CONTAINER_RUNNING}
	for name, c := range map[string]struct {
		filter *api.ContainerFilter
		want   []string
	}{
		"pod":   {&api.ContainerFilter{PodSandboxId: pod}, []string{one, two}},
		"state": {&api.ContainerFilter{PodSandboxId: pod, State: running}, []string{two}},
		"id":    {&api.ContainerFilter{Id: one}, []string{one}},
		"label": {&api.ContainerFilter{LabelSelector: map[string]string{"test": b.uid, "name": "one"}}, []string{one}},
	} {
		list := must(b.Runtime.ListContainers(b.ctx, &api.ListContainersRequest{Filter: c.filter}))(b)
		var got []string
		for _, s := range list.Containers {
			got = append(got, s.Id)
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func testNotFound(t *testing.T, b *bench) {
	const id = "0000nothing"
	_, e1 := b.Runtime.PodSandboxStatus(b.ctx, &api.PodSandboxStatusRequest{PodSandboxId: id})
	_, e2 := b.Runtime.ContainerStatus(b.ctx, &api.ContainerStatusRequest{ContainerId: id})
	_, e3 := b.Runtime.StartContainer(b.ctx, &api.StartContainerRequest{ContainerId: id})
	_, e4 := b.Runtime.CreateContainer(b.ctx, &api.CreateContainerRequest{PodSandboxId: id, Config: b.containerConfig("c")})
	for i, err := range []error{e1, e2, e3, e4} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	_, e1 = b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id})
	_, e2 = b.Runtime.RemoveContainer(b.ctx, &api.RemoveContainerRequest{ContainerId: id})
	_, e3 = b.Runtime.StopPodSandbox(b.ctx, &api.StopPodSandboxRequest{PodSandboxId: id})
	_, e4 = b.Runtime.RemovePodSandbox(b.ctx, &api.RemovePodSandboxRequest{PodSandboxId: id})
	for i, err := range []error{e1, e2, e3, e4} {
		if err != nil {
			t.Errorf("stopping or removing a missing object, call %d: %v", i+1, err)
		}
	}
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("c")
	c.Image.Image = "islet.test/missing:1"
	if err := b.tryCreate(pod, cfg, c); !errdefs.IsNotFound(err) {
		t.Errorf("a missing image: %v", err)
	}
}

func testWrongState(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	id := b.create(pod, cfg, b.containerConfig("main", "wait"))
	if _, err := b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog"}}); err == nil {
		t.Error("exec succeeded in a container that is not running")
	}
	b.start(id)
	must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id, Timeout: 10}))(b)
	if _, err := b.Runtime.StartContainer(b.ctx, &api.StartContainerRequest{ContainerId: id}); err == nil {
		t.Error("started a container that has ended")
	}
	must(b.Runtime.StopPodSandbox(b.ctx, &api.StopPodSandboxRequest{PodSandboxId: pod}))(b)
	if err := b.tryCreate(pod, cfg, b.containerConfig("late")); err == nil {
		t.Error("created a container in a stopped sandbox")
	}
}

// testRunning checks that ForEachRunning calls its callback with the running containers, as ListContainers
// returns them.
func testRunning(t *testing.T, b *bench) {
	r, ok := b.Runtime.(interface{ ForEachRunning(func(*api.Container)) })
	if !ok {
		t.Skip("the runtime has no method ForEachRunning")
	}
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	var want *api.Container
	for _, name := range []string{"created", "ended", "main"} {
		c := b.containerConfig(name, "wait")
		id := b.create(pod, cfg, c)
		if name != "created" {
			b.start(id)
			want = must(b.Runtime.ListContainers(b.ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{Id: id}}))(b).Containers[0]
		}
		if name == "ended" {
			must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id}))(b)
		}
	}
	want.Annotations = nil
	var got []*api.Container
	r.ForEachRunning(func(c *api.Container) {
		if c.PodSandboxId == pod {
			got = append(got, proto.CloneOf(c))
		}
	})
	if len(got) != 1 || !proto.Equal(got[0], want) {
		t.Errorf("the callback got %v, want %v", got, want)
	}
}

// testMessages checks that the runtime does not keep or modify messages of the caller, and the
// other way round.
func testMessages(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "wait")
	id := b.create(pod, cfg, c)
	cfg.Labels["test"], c.Labels["name"], c.Metadata.Name = "changed", "changed", "changed"
	list := must(b.Runtime.ListContainers(b.ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{Id: id}}))(b)
	list.Containers[0].Labels["name"] = "changed"
	b.status(id).Annotations["note"] = "changed"
	pods := must(b.Runtime.ListPodSandbox(b.ctx, &api.ListPodSandboxRequest{Filter: &api.PodSandboxFilter{Id: pod}}))(b)
	if pods.Items[0].Labels["test"] != b.uid {
		t.Error("the sandbox shares its labels with the request")
	}
	if st := b.status(id); st.Labels["name"] != "main" || st.Metadata.Name != "main" || st.Annotations["note"] != "kept verbatim" {
		t.Errorf("the container shares its messages with the request: %v", st)
	}
}

func testEvents(t *testing.T, b *bench) {
	events, ok := b.Runtime.(cri.Events)
	if !ok {
		t.Skip("no events")
	}
	ctx, cancel := context.WithCancel(b.ctx)
	var mu sync.Mutex
	seen := map[string][]api.ContainerEventType{}
	ended := make(chan error, 1)
	go func() {
		ended <- events.ContainerEvents(ctx, func(e *api.ContainerEventResponse) {
			mu.Lock()
			defer mu.Unlock()
			seen[e.ContainerId] = append(seen[e.ContainerId], e.ContainerEventType)
		})
	}()
	// Remove sandboxes until an event arrives, which shows that the subscription has begun.
	first := b.runPod(b.podConfig(func(c *api.PodSandboxConfig) { c.Metadata.Attempt = 9 }))
	b.waitUntil("the subscription begins", func() bool {
		must(b.Runtime.RemovePodSandbox(b.ctx, &api.RemovePodSandboxRequest{PodSandboxId: first}))(b)
		b.runPod(b.podConfig(func(c *api.PodSandboxConfig) { c.Metadata.Attempt = 9 }))
		mu.Lock()
		defer mu.Unlock()
		return len(seen[first]) > 0
	})
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	id := b.create(pod, cfg, b.containerConfig("main", "wait"))
	b.start(id)
	must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id, Timeout: 10}))(b)
	must(b.Runtime.RemoveContainer(b.ctx, &api.RemoveContainerRequest{ContainerId: id}))(b)
	want := []api.ContainerEventType{
		api.ContainerEventType_CONTAINER_CREATED_EVENT, api.ContainerEventType_CONTAINER_STARTED_EVENT,
		api.ContainerEventType_CONTAINER_STOPPED_EVENT, api.ContainerEventType_CONTAINER_DELETED_EVENT,
	}
	must(b.Runtime.StopPodSandbox(b.ctx, &api.StopPodSandboxRequest{PodSandboxId: pod}))(b)
	must(b.Runtime.RemovePodSandbox(b.ctx, &api.RemovePodSandboxRequest{PodSandboxId: pod}))(b)
	b.waitUntil("all events arrive", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(seen[id], want[3]) && slices.Contains(seen[pod], want[3])
	})
	mu.Lock()
	if !slices.Equal(seen[id], want) || !slices.Equal(seen[pod], want) {
		t.Errorf("container: %v, sandbox: %v", seen[id], seen[pod])
	}
	mu.Unlock()
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("ContainerEvents returned %v", err)
	}
}

func testRemoveRunning(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	one, two := b.create(pod, cfg, b.containerConfig("one", "ignore")), b.create(pod, cfg, b.containerConfig("two", "ignore"))
	b.start(one)
	b.start(two)
	must(b.Runtime.RemoveContainer(b.ctx, &api.RemoveContainerRequest{ContainerId: one}))(b)
	must(b.Runtime.RemovePodSandbox(b.ctx, &api.RemovePodSandboxRequest{PodSandboxId: pod}))(b)
	if _, err := b.Runtime.ContainerStatus(b.ctx, &api.ContainerStatusRequest{ContainerId: two}); !errdefs.IsNotFound(err) {
		t.Errorf("the status of a container whose sandbox is removed: %v", err)
	}
}
