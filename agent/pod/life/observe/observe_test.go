package observe

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
)

// A table is a fake runtime. The test sets its sandboxes and containers.
type table struct {
	cri.Runtime
	mu         sync.Mutex
	sandboxes  []*api.PodSandboxStatus
	containers []*api.ContainerStatus
	down       error
	read       int // calls of ContainerStatus
	listed     int // calls of ListPodSandbox
}

func (r *table) reads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listed
}

func (r *table) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *table) ListPodSandbox(_ context.Context, req *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed++
	out := &api.ListPodSandboxResponse{}
	for _, s := range r.sandboxes {
		if uid, ok := req.Filter.LabelSelector[keys.PodUID]; !ok || s.Labels[keys.PodUID] == uid {
			out.Items = append(out.Items, &api.PodSandbox{Id: s.Id, State: s.State, Labels: s.Labels})
		}
	}
	return out, r.down
}

func (r *table) ListContainers(_ context.Context, req *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.ListContainersResponse{}
	for _, c := range r.containers {
		if uid, ok := req.Filter.LabelSelector[keys.PodUID]; !ok || c.Labels[keys.PodUID] == uid {
			out.Containers = append(out.Containers, &api.Container{Id: c.Id, PodSandboxId: "s", State: c.State, Labels: c.Labels})
		}
	}
	return out, r.down
}

func (r *table) PodSandboxStatus(_ context.Context, req *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sandboxes {
		if s.Id == req.PodSandboxId {
			return &api.PodSandboxStatusResponse{Status: s}, nil
		}
	}
	return nil, errdefs.ErrNotFound
}

func (r *table) ContainerStatus(_ context.Context, req *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read++
	for _, c := range r.containers {
		if c.Id == req.ContainerId {
			return &api.ContainerStatusResponse{Status: &api.ContainerStatus{Id: c.Id, Metadata: c.Metadata, User: c.User, State: c.State, StartedAt: c.StartedAt, FinishedAt: c.FinishedAt, ExitCode: c.ExitCode, Reason: c.Reason,
				Labels: c.Labels, Annotations: c.Annotations, Image: c.Image, Mounts: c.Mounts, LogPath: c.LogPath, StopSignal: c.StopSignal}}, nil
		}
	}
	return nil, errdefs.ErrNotFound
}

// An eventRuntime is a table that sends events too.
type eventRuntime struct {
	*table
	events chan error // nil: pod u1 has changed; otherwise the stream breaks
}

func (r eventRuntime) ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error {
	for {
		select {
		case err := <-r.events:
			if err != nil {
				return err
			}
			handle(&api.ContainerEventResponse{PodSandboxStatus: &api.PodSandboxStatus{Metadata: &api.PodSandboxMetadata{Uid: "u1"}}})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func labels(uid string) map[string]string { return map[string]string{keys.PodUID: uid} }

func aTable() *table {
	return &table{
		sandboxes: []*api.PodSandboxStatus{
			{Id: "s", Metadata: &api.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u1", Attempt: 2}, Labels: labels("u1"), CreatedAt: 5e9,
				Annotations: map[string]string{keys.Started: "1234", keys.ConfigSource: "file", keys.SpecHash: "abc"},
				Network:     &api.PodSandboxNetworkStatus{Ip: "10.0.0.7", AdditionalIps: []*api.PodIP{{Ip: "fd00::7"}}}},
			{Id: "foreign", Metadata: &api.PodSandboxMetadata{}},
		},
		containers: []*api.ContainerStatus{{Id: "c", Metadata: &api.ContainerMetadata{Name: "app", Attempt: 3}, State: api.ContainerState_CONTAINER_RUNNING, StartedAt: 6e9,
			Labels: labels("u1"), Annotations: map[string]string{keys.Streak: "4", keys.ContainerHash: "8e45cbd0"}, User: &api.ContainerUser{Linux: &api.LinuxContainerUser{Uid: 7, Gid: 8, SupplementalGroups: []int64{9}}}, Image: &api.ImageSpec{Image: "sha256:1", UserSpecifiedImage: "app:1"}}},
	}
}

// run starts an observer. It returns the observer and the channel of its changes.
func run(t *testing.T, r cri.Runtime) (*Observer, chan types.UID) {
	changes := make(chan types.UID, 100)
	o := New(Config{Root: t.TempDir(), Runtime: r, Changed: func(uid types.UID) { changes <- uid }, Log: slog.New(slog.DiscardHandler)})
	if err := o.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); o.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return o, changes
}

func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := run(t, aTable())
		seen := o.Pod("u1")
		sb, c := seen.Sandboxes[0], seen.Containers[0]
		if sb.ID != "s" || !sb.Ready || sb.Attempt != 2 || sb.Source != "file" || !sb.Started.Equal(time.Unix(1234, 0)) ||
			len(sb.IPs) != 2 || sb.Name != "web" || sb.Hash != "abc" {
			t.Errorf("%+v", sb)
		}
		if c.Name != "app" || c.State != plan.Running || c.Streak != 4 || c.Attempt != 3 || c.Image != "app:1" || c.Hash != "8e45cbd0" ||
			!c.FinishedAt.IsZero() || c.SandboxID != "s" {
			t.Errorf("%+v", c)
		}
		if u := c.User; u == nil || u.UID != 7 || u.GID != 8 || len(u.Groups) != 1 || u.Groups[0] != 9 {
			t.Errorf("user %+v", u)
		}
		if uids := o.UIDs(); len(uids) != 1 || uids[0] != "u1" {
			t.Errorf("pods %v", uids)
		}
	})
}

// TestEvents checks that each event causes one read. An object that cannot have changed is not read again.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		o, changes := run(t, r)
		<-changes
		r.events <- nil
		synctest.Wait()
		if len(changes) > 0 || r.read != 1 {
			t.Errorf("no pod changed, but %d changes were reported and %d statuses read", len(changes), r.read)
		}
		r.change(func() { r.containers[0].State = api.ContainerState_CONTAINER_EXITED })
		r.events <- nil
		<-changes
		if o.Pod("u1").Containers[0].State != plan.Exited {
			t.Error("the view is old")
		}
		r.change(func() { r.containers, r.sandboxes = nil, nil })
		r.events <- nil
		<-changes
		if len(o.UIDs()) > 0 {
			t.Error("the pod was not removed")
		}
	})
}

// TestReasonComesLate checks a container whose exit reason becomes available after its exit, without an event. The observer reads the
// container up to two more times until the reason is final.
func TestReasonComesLate(t *testing.T) {
	t.Run("soon", func(t *testing.T) { reasonComes(t, 0, rereadAfter[0]) })
	t.Run("late", func(t *testing.T) { reasonComes(t, 5*time.Second, rereadAfter[1]) })
}

func reasonComes(t *testing.T, after, within time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		o, changes := run(t, r)
		<-changes
		message := filepath.Join(o.cfg.Root, "pods/u1/containers/app/3")
		if err := errors.Join(os.MkdirAll(filepath.Dir(message), 0o700), os.WriteFile(message, []byte("bye"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r.change(func() {
			c := r.containers[0]
			c.State, c.ExitCode, c.Reason, c.FinishedAt = api.ContainerState_CONTAINER_EXITED, 137, "Error", time.Now().UnixNano()
			c.Annotations[keys.MessagePath], c.Mounts = "/m", []*api.Mount{{ContainerPath: "/m", HostPath: message}}
		})
		r.events <- nil
		<-changes
		if o.Pod("u1").Containers[0].Reason != "Error" {
			t.Errorf("the observed exit is %+v", o.Pod("u1").Containers[0])
		}
		began := time.Now()
		time.Sleep(after)
		r.change(func() { r.containers[0].Reason = "OOMKilled" })
		if err := os.Remove(message); err != nil { // the pod is being removed
			t.Fatal(err)
		}
		<-changes
		if c := o.Pod("u1").Containers[0]; c.Reason != "OOMKilled" || c.Message != "bye" || time.Since(began) > within {
			t.Errorf("after %v the observed exit is %+v", time.Since(began), c)
		}
		before := r.read
		time.Sleep(time.Minute)
		r.events <- nil
		synctest.Wait()
		if len(changes) > 0 || r.read != before {
			t.Errorf("%d more changes, %d more readings", len(changes), r.read-before)
		}
	})
}

// TestLostEvents checks that the observer lists all pods soon after the event stream breaks. If there is no event, it lists them after five
// minutes.
func TestLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		_, changes := run(t, r)
		<-changes
		began := time.Now()
		r.change(func() { r.containers[0].State = api.ContainerState_CONTAINER_EXITED })
		r.events <- errors.New("overrun")
		<-changes
		if time.Since(began) > resubscribeAfter {
			t.Errorf("took %v", time.Since(began))
		}
		r.change(func() { r.sandboxes[0].State = api.PodSandboxState_SANDBOX_NOTREADY })
		<-changes
		if time.Since(began) > relistWithEvents {
			t.Errorf("took %v", time.Since(began))
		}
	})
}

// TestChangesBeforeTheEvents checks that the observer finds changes that happened before its event subscription was active. This applies to
// the first subscription and to a new one after a break.
func TestChangesBeforeTheEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := eventRuntime{aTable(), make(chan error)}
		_, changes := run(t, r)
		<-changes
		began := time.Now()
		r.change(func() { r.containers[0].State = api.ContainerState_CONTAINER_EXITED })
		<-changes
		if time.Since(began) > activeAfter {
			t.Errorf("at the start it took %v", time.Since(began))
		}
		r.events <- errors.New("overrun")
		time.Sleep(resubscribeAfter)
		synctest.Wait() // all pods have been listed, but the subscription may not be active
		began = time.Now()
		r.change(func() { r.sandboxes[0].State = api.PodSandboxState_SANDBOX_NOTREADY })
		<-changes
		if time.Since(began) > activeAfter {
			t.Errorf("after a break it took %v", time.Since(began))
		}
	})
}

// TestRelist checks that a runtime without events is listed frequently. While the runtime is down, the observer keeps its views.
func TestRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := aTable()
		o, changes := run(t, r)
		<-changes
		r.change(func() { r.down = errors.New("down") })
		time.Sleep(time.Minute)
		if len(o.Pod("u1").Containers) != 1 || len(changes) > 0 {
			t.Error("the view was lost with the connection")
		}
		r.change(func() { r.down, r.containers = nil, nil })
		began := time.Now()
		<-changes
		if time.Since(began) > relistWithoutEvents || len(o.Pod("u1").Containers) != 0 {
			t.Errorf("took %v", time.Since(began))
		}
	})
}

// TestSync checks that the kubelet option syncFrequency sets the interval at which a runtime with events is listed.
func TestSync(t *testing.T) {
	for sync, want := range map[time.Duration]time.Duration{0: relistWithEvents, time.Minute: relistWithEvents, 10 * time.Second: 50 * time.Second} {
		if o := New(Config{Runtime: withEvents{}, Sync: sync}); o.cfg.Relist != want {
			t.Errorf("%v: %v", sync, o.cfg.Relist)
		}
	}
	if o := New(Config{Sync: time.Hour}); o.cfg.Relist != relistWithoutEvents {
		t.Errorf("without events: %v", o.cfg.Relist)
	}
}

type withEvents struct {
	cri.Runtime
	cri.Events
}

// TestFacts checks that the observer reads the values that the agent has stored with a container. Invalid values are ignored.
func TestFacts(t *testing.T) {
	r := &table{}
	pod := map[string]string{keys.PodUID: "u"}
	r.containers = []*api.ContainerStatus{
		{Id: "a", Metadata: &api.ContainerMetadata{Name: "a"}, Labels: pod, StopSignal: api.Signal_SIGNAL_SIGRTMINPLUS3,
			Annotations: map[string]string{keys.Streak: "2", keys.Round: "3", keys.PostStart: "true", keys.ContainerScheduler: "FIFO priority=1"}},
		{Id: "b", Metadata: &api.ContainerMetadata{Name: "b"}, Labels: pod,
			Annotations: map[string]string{keys.Streak: "-2", keys.Round: "99999999999"}},
	}
	o := New(Config{Runtime: r, Changed: func(types.UID) {}, Log: slog.New(slog.DiscardHandler)})
	if err := o.Relist(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := o.Pod("u").Containers
	if len(c) != 2 || c[0].Streak != 2 || c[0].Round != 3 || !c[0].PostStart || c[0].StopSignal != "SIGRTMIN+3" ||
		c[0].Scheduler != "FIFO priority=1" {
		t.Errorf("a: %+v", c)
	}
	if c[1].Streak != 0 || c[1].Round != 0 || c[1].PostStart || c[1].StopSignal != "" {
		t.Errorf("b: %+v", c[1])
	}
	if !o.HasContainer("a") || o.HasContainer("c") {
		t.Error("the known containers differ from those of the runtime")
	}
}
