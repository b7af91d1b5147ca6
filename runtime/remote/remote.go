package remote

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// Config configures Open.
type Config struct {
	Endpoint      string        // endpoint of the runtime service: a path or a unix:// URL
	ImageEndpoint string        // endpoint of the image service; default Endpoint
	Timeout       time.Duration // runtimeRequestTimeout
	Pulls         int64         // maximum number of concurrent pulls; 0 means no limit
	// PullsPerSecond and PullBurst are registryPullQPS and registryBurst. A pull that exceeds the
	// rate waits. If PullsPerSecond is 0, there is no limit.
	PullsPerSecond, PullBurst int
	// Changed, if not nil, is called when the result of Ready, CheckPodNetwork or Features may have changed. It must
	// not block.
	Changed func()
	// ObserveCall, if not nil, is called after each call.
	ObserveCall func(method string, took time.Duration, err error)
	Log         *slog.Logger
}

// A Runtime is the runtime at a CRI socket. It implements cri.Runtime and cri.Events.
type Runtime struct {
	*cri.Client
	images *images
	c      Config
	calls  callTimer

	mu           sync.Mutex
	state        state
	stateChanged chan struct{} // closed and replaced at each change of state
}

// Open returns a Runtime. It does not connect to the runtime.
func Open(c Config) (*Runtime, error) {
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.ObserveCall == nil {
		c.ObserveCall = func(string, time.Duration, error) {}
	}
	r := &Runtime{c: c, stateChanged: make(chan struct{})}
	r.calls = callTimer{timeout: c.Timeout, observeCall: c.ObserveCall, objectChanged: make(chan struct{}, 1)}
	o := cri.Options{Intercept: r.calls.intercept, FailFast: true}
	var err error
	if r.Client, err = cri.DialWith(c.Endpoint, o); err != nil {
		return nil, err
	}
	r.images = &images{Client: r.Client, rate: cri.PullRate(c.PullsPerSecond, c.PullBurst)}
	if c.ImageEndpoint != "" && Socket(c.ImageEndpoint) != Socket(c.Endpoint) {
		if r.images.Client, err = cri.DialWith(c.ImageEndpoint, o); err != nil {
			return nil, errors.Join(err, r.Client.Close())
		}
	}
	if c.Pulls > 0 {
		r.images.pulls = semaphore.NewWeighted(c.Pulls)
	}
	return r, nil
}

// Socket returns the path of the socket of an endpoint.
func Socket(endpoint string) string { return strings.TrimPrefix(endpoint, "unix://") }

// Images returns the runtime's image service.
func (r *Runtime) Images() cri.Images { return r.images }

// Close closes the connections. The containers continue to run.
func (r *Runtime) Close() error {
	if r.images.Client != r.Client {
		return errors.Join(r.images.Client.Close(), r.Client.Close())
	}
	return r.Client.Close()
}

// RunPodSandbox creates a sandbox. If the creation fails and a ready sandbox with the same identity
// exists, RunPodSandbox returns the ID of that sandbox. An earlier call may have created it
// although the response was lost.
func (r *Runtime) RunPodSandbox(ctx context.Context, q *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	resp, err := r.Client.RunPodSandbox(ctx, q)
	want := q.GetConfig().GetMetadata()
	if err == nil || ctx.Err() != nil || errdefs.IsUnavailable(err) || want == nil {
		return resp, err
	}
	list, lerr := r.ListPodSandbox(ctx, &api.ListPodSandboxRequest{Filter: &api.PodSandboxFilter{
		State: &api.PodSandboxStateValue{State: api.PodSandboxState_SANDBOX_READY}}})
	for _, s := range list.GetItems() {
		m := s.GetMetadata()
		same := m.GetUid() == want.Uid && m.GetName() == want.Name && m.GetNamespace() == want.Namespace && m.GetAttempt() == want.Attempt
		if lerr == nil && same {
			return &api.RunPodSandboxResponse{PodSandboxId: s.Id}, nil
		}
	}
	return nil, err
}

// CreateContainer creates a container. If the creation fails and a container with the same identity
// exists, CreateContainer returns the ID of that container.
func (r *Runtime) CreateContainer(ctx context.Context, q *api.CreateContainerRequest) (*api.CreateContainerResponse, error) {
	resp, err := r.Client.CreateContainer(ctx, q)
	want := q.GetConfig().GetMetadata()
	if err == nil || ctx.Err() != nil || errdefs.IsUnavailable(err) || want == nil {
		return resp, err
	}
	list, lerr := r.ListContainers(ctx, &api.ListContainersRequest{Filter: &api.ContainerFilter{PodSandboxId: q.PodSandboxId}})
	for _, c := range list.GetContainers() {
		m := c.GetMetadata()
		if lerr == nil && c.PodSandboxId == q.PodSandboxId && m.GetName() == want.Name && m.GetAttempt() == want.Attempt {
			return &api.CreateContainerResponse{ContainerId: c.Id}, nil
		}
	}
	return nil, err
}

// StartContainer starts a container. It is not an error if the container is already running.
func (r *Runtime) StartContainer(ctx context.Context, q *api.StartContainerRequest) (*api.StartContainerResponse, error) {
	resp, err := r.Client.StartContainer(ctx, q)
	if err == nil || ctx.Err() != nil || errdefs.IsUnavailable(err) {
		return resp, err
	}
	st, serr := r.ContainerStatus(ctx, &api.ContainerStatusRequest{ContainerId: q.ContainerId})
	if serr == nil && st.GetStatus().GetState() == api.ContainerState_CONTAINER_RUNNING {
		return &api.StartContainerResponse{}, nil
	}
	return nil, err
}

// CgroupDriver returns the cgroup driver of the runtime, or "" if the runtime does not report it
// (KEP-4033). For example, containerd reports it since 2.0.
func (r *Runtime) CgroupDriver(ctx context.Context) (string, error) {
	resp, err := r.RuntimeConfig(ctx, &api.RuntimeConfigRequest{})
	if errdefs.IsNotImplemented(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the container runtime's cgroup driver: %w", err)
	}
	if resp.GetLinux() == nil {
		return "", nil
	}
	return strings.ToLower(resp.GetLinux().GetCgroupDriver().String()), nil
}

// images is the runtime's image service.
type images struct {
	*cri.Client
	pulls *semaphore.Weighted // nil means no limit
	rate  *rate.Limiter
}

// PullImage pulls an image within the limits of Config.Pulls, PullsPerSecond and PullBurst.
func (i *images) PullImage(ctx context.Context, q *api.PullImageRequest) (*api.PullImageResponse, error) {
	if i.pulls != nil {
		if err := i.pulls.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		defer i.pulls.Release(1)
	}
	if err := i.rate.Wait(ctx); err != nil {
		return nil, err
	}
	return i.Client.PullImage(ctx, q)
}
