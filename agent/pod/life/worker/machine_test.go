package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/fake"
)

// machine is an in-memory container runtime whose calls take time. The fields above mu are set before the machine is used. mu protects the
// fields below it.
type machine struct {
	*fake.Runtime
	startup time.Duration                       // duration of a sandbox's start
	life    time.Duration                       // duration until a container fails; 0: it never fails
	polite  bool                                // containers exit with code 0 when they are stopped
	manners map[string]time.Duration            // how long containers take to exit with code 0 after their stop signal, by name
	runFail func() error                        // error of a sandbox's start
	pull    func(context.Context, string) error // nil: a pull succeeds
	login   func(*api.AuthConfig) error         // verifies a pull's credentials; nil: all are valid

	mu         sync.Mutex
	usage      map[string]uint64 // bytes of memory; the key is the container's name
	updated    []string          // sizes of resized containers, in order
	busy, most int               // current and highest number of sandboxes that are starting
	started    []time.Time
	pulling    map[string]bool
	configs    map[string]*api.ContainerConfig // configurations of started containers; the key is the container's ID
	reads      map[string]int                  // number of calls that read the state of pods; the key is the name of the call
}

func newMachine(images ...string) *machine {
	m := &machine{Runtime: fake.New(images...), pulling: map[string]bool{}, configs: map[string]*api.ContainerConfig{}, reads: map[string]int{}}
	m.Started = func(id string, c *api.ContainerConfig) {
		m.mu.Lock()
		m.started = append(m.started, time.Now())
		m.configs[id] = c
		m.mu.Unlock()
		if m.life > 0 {
			time.AfterFunc(m.life, func() { m.End(id, 1) })
		}
	}
	return m
}

func (m *machine) RunPodSandbox(ctx context.Context, r *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	m.count(1)
	time.Sleep(m.startup)
	m.count(-1)
	if m.runFail != nil {
		if err := m.runFail(); err != nil {
			return nil, err
		}
	}
	return m.Runtime.RunPodSandbox(ctx, r)
}

func (m *machine) count(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy += n
	m.most = max(m.most, m.busy)
}

// This helper returns the highest number of sandboxes that were starting at the same time.
func (m *machine) starting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}

// StopContainer takes the whole grace period, because the containers ignore SIGTERM. If polite is set, the containers exit at once.
func (m *machine) StopContainer(ctx context.Context, r *api.StopContainerRequest) (*api.StopContainerResponse, error) {
	after, ok := time.Duration(0), false
	if m.manners != nil {
		after, ok = m.manners[m.nameOf(ctx, r.ContainerId)]
	}
	if ok {
		time.AfterFunc(after, func() { m.End(r.ContainerId, 0) }) // also if the agent ends in the meantime
		select {
		case <-time.After(after + time.Millisecond):
			return m.Runtime.StopContainer(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if m.polite {
		m.End(r.ContainerId, 0)
		return m.Runtime.StopContainer(ctx, r)
	}
	select {
	case <-time.After(time.Duration(r.Timeout) * time.Second):
		return m.Runtime.StopContainer(ctx, &api.StopContainerRequest{ContainerId: r.ContainerId})
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// StartContainer panics if two instances of a container run.
func (m *machine) StartContainer(ctx context.Context, r *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	out, err := m.Runtime.StartContainer(ctx, r)
	names := m.list(false)
	if len(slices.Compact(names)) < len(names) {
		panic(fmt.Sprint("two instances: ", names))
	}
	return out, err
}

// PullImage panics if an image is pulled twice at the same time.
func (m *machine) PullImage(ctx context.Context, r *api.PullImageRequest) (*api.PullImageResponse, error) {
	name := r.Image.Image
	m.mu.Lock()
	pull := m.pull
	if m.pulling[name] {
		panic("two pulls of " + name)
	}
	m.pulling[name] = true
	m.mu.Unlock()
	var err error
	if m.login != nil {
		err = m.login(r.Auth)
	}
	if pull != nil && err == nil {
		err = pull(ctx, name)
	}
	m.mu.Lock()
	m.pulling[name] = false
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return m.Runtime.PullImage(ctx, r)
}

// This helper adds an image, as an import does.
func (m *machine) bring(t *testing.T, name string) {
	t.Helper()
	if _, err := m.Runtime.PullImage(t.Context(), &api.PullImageRequest{Image: &api.ImageSpec{Image: name}}); err != nil {
		t.Fatal(err)
	}
}

// list returns the running containers in the form pod/container or pod/container#attempt.
func (m *machine) list(attempts bool) (out []string) {
	running := &api.ContainerStateValue{State: api.ContainerState_CONTAINER_RUNNING}
	r, err := m.Runtime.ListContainers(context.Background(), &api.ListContainersRequest{Filter: &api.ContainerFilter{State: running}})
	if err != nil {
		panic(err)
	}
	for _, c := range r.Containers {
		name := c.Labels["io.kubernetes.pod.uid"] + "/" + c.Metadata.Name
		if attempts {
			name += fmt.Sprint("#", c.Metadata.Attempt)
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// countLeft returns the number of sandboxes and containers of all pods.
func (m *machine) countLeft(t *testing.T) int {
	t.Helper()
	c, err := m.ListContainers(t.Context(), &api.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.ListPodSandbox(t.Context(), &api.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return len(c.Containers) + len(s.Items)
}
