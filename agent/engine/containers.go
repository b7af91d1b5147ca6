package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/engine/operations"
	"github.com/islet-edge/islet/agent/engine/podlogs"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/store"
	agentapi "github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/net/cni"
	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/ctrd"
)

// Config is the input of Open.
type Config struct {
	*config.Config
	Store          *store.Store // stores address leases, imports and the runtime of the last start
	ImagesChanged  func()       // must not block
	ImagesRemoved  func()
	NetworkChanged func() // is also called when the runtime or its features have changed; must not block
	// OnLeave is called with the old runtime when the node changes to another one. It is called before the node's
	// pods in the old runtime are stopped. If it returns an error, no pod is stopped.
	OnLeave     func(ctx context.Context, rt cri.Runtime) error
	RecordEvent func(warning bool, reason, message string) // records an event on the Node
	Hold        bool                                       // the agent is on trial: see cni.Config
	RemoveOnly  bool                                       // containers are only removed: see ctrd.Config
	Link        *link.Link                                 // provides the time, and reports whether a pull can reach a registry
	Log         *slog.Logger
}

// Containers is the opened container runtime with its images and its network.
type Containers struct {
	Runtime cri.Runtime
	Streams cri.Runtime // the same runtime; it also implements cri.Streamer
	Images  cri.Images
	Network Network

	Operations   *operations.Operations // counts the calls to Runtime and Images
	CgroupDriver string                 // of the runtime
	Cgroups      *cgroup.CachedReader   // the cached cgroup figures of the runtime, which the other readers share
	Endpoint     string                 // of the runtime; empty if it is in this process
	Leftovers    string                 // describes the leftovers in the previous runtime; empty if none are known

	backend
	podsKnown chan struct{} // closed once the running pods have been listed
	moveError error         // why the configured runtime is not in use
	damage    string        // why the storage of images was replaced; empty if it was not
	cfg       *config.Config
	log       *slog.Logger
}

// Network sets up the network of pods. *cni.Network implements it.
type Network interface {
	Run(ctx context.Context) error
	IsStale(sandbox string) bool
	SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error
	PodCIDRs() []netip.Prefix
	Config() string
	Problem() error
	Repairs() cni.Repairs
	Clean(ctx context.Context) error
}

// Imports waits for imports of image archives.
type Imports interface {
	// WaitImage returns when no import in progress can provide the image, or when ctx ends.
	WaitImage(ctx context.Context, image string) error
}

// A backend has the operations that differ between the runtime in this process and a remote runtime.
type backend interface {
	// CheckPodNetwork returns an error, with a kubelet's message, if no pod can get its own network now.
	CheckPodNetwork() error
	// Ready returns an error, with a kubelet's message, if the network of the node is not ready.
	Ready() error
	// IsResponding reports whether the runtime answers. Await waits until the runtime answers.
	IsResponding() bool
	Await(ctx context.Context) error
	// Features returns the features that the runtime has last reported.
	Features() *api.RuntimeFeatures
	// Reconcile releases the network resources of sandboxes that no longer exist. It is
	// called before any pod starts.
	Reconcile(ctx context.Context) error
	// UpdateDNS writes the DNS configuration that the function returns into the resolv.conf of each running sandbox. It skips a sandbox if
	// the function returns nil, or if a container has changed the file. A remote runtime does not support such updates.
	UpdateDNS(func(*api.PodSandboxMetadata) *api.DNSConfig) error
	// Imports returns the imports for which a pod may wait, or nil if the backend imports no archives.
	Imports() Imports
	ImportsInProgress() []agentapi.Import
	FailedArchives() []agentapi.Import
	Run(ctx context.Context) error
	// Close leaves the containers running.
	Close() error
}

// Open starts the runtime in this process, or connects to the one at RuntimeEndpoint. If the node used another
// runtime before, its pods there are stopped and removed first.
func Open(ctx context.Context, a Config) (*Containers, error) {
	used, err := loadRecord(ctx, a)
	if err != nil {
		return nil, err
	}
	now, stays, err := moveRuntime(ctx, a, used)
	if err != nil {
		return nil, err
	}
	c, err := open(ctx, a, now.Endpoint)
	if err != nil {
		return nil, err
	}
	c.Leftovers, c.moveError, c.podsKnown, c.log, c.cfg = now.Left, stays, make(chan struct{}), a.Log, a.Config
	if c.Endpoint != "" {
		c.CgroupDriver = now.cgroupDriver(a, c.backend.(*remoteBackend).Runtime)
	}
	if err := now.save(ctx, a); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open opens the runtime at the given endpoint. An empty endpoint means the runtime in this process.
func open(ctx context.Context, a Config, endpoint string) (*Containers, error) {
	cgroups := cgroup.NewRecent(cgroup.NewReader(cgroup.Mountpoint), time.Second)
	if endpoint != "" {
		return openRemote(ctx, a, endpoint, cgroups)
	}
	return openNative(ctx, a, cgroups)
}

// Problems returns messages about the runtime and its network for the administrator.
func (c *Containers) Problems() (out []string) {
	for _, err := range []error{c.moveError, c.Network.Problem()} {
		if err != nil {
			out = append(out, err.Error())
		}
	}
	if c.damage != "" {
		out = append(out, c.damage)
	}
	repairs := c.Network.Repairs()
	if repairs.Conflict != "" {
		out = append(out, "the pods' network and another network of this machine overlap, and one of them may be unreachable: "+
			repairs.Conflict)
	}
	for _, item := range repairs.Contested {
		out = append(out, "another program repeatedly removes or changes the "+item+
			" of the pod network; islet repairs it at growing intervals")
	}
	return out
}

// runtimeName returns which runtime is in use, such as containerd or cri-o. It returns "" if the call fails.
func (c *Containers) runtimeName(ctx context.Context) string {
	v, err := c.Runtime.Version(ctx, &api.VersionRequest{})
	if err != nil {
		return ""
	}
	return v.RuntimeName
}

// OwnSandboxes returns those sandboxes in a list that belong to this node. A remote runtime may also run
// sandboxes of other programs, which do not have the agent's labels.
func (c *Containers) OwnSandboxes(list []*api.PodSandbox) (own []*api.PodSandbox) {
	for _, s := range list {
		if c.Endpoint == "" || s.Labels[keys.PodUID] != "" && s.Annotations[keys.Started] != "" {
			own = append(own, s)
		}
	}
	return own
}

// reopenLog makes the runtime open a container's log file again.
func (c *Containers) reopenLog(ctx context.Context, id string) error {
	_, err := c.Runtime.ReopenContainerLog(ctx, &api.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// observeRetry is the pause after a failed observation of the running pods.
const observeRetry = time.Second

// MarkObserved records that the running pods are known. It passes the runtime's name, and a function that returns the runtime's features,
// to the function set.
func (c *Containers) MarkObserved(ctx context.Context, set func(name string, features func() *api.RuntimeFeatures)) {
	set(c.runtimeName(ctx), c.Features)
	close(c.podsKnown)
}

// CheckPodsKnown returns an error for users until the running pods are known.
func (c *Containers) CheckPodsKnown() error {
	select {
	case <-c.podsKnown:
		return nil
	default:
		return fmt.Errorf("%s does not answer: start it first", runtimeTitle(c.Endpoint))
	}
}

// ObserveOrLoad determines the pods of this node at the start of the agent. If the runtime answers, it calls the
// function observe, which lists the running pods. Otherwise it calls the function load, which only uses the stored
// state. In that case ObserveLoop calls the function observe later.
func (c *Containers) ObserveOrLoad(
	ctx context.Context, observe func(context.Context) error, load func(context.Context, []types.UID) error,
) error {
	if !c.IsResponding() {
		return load(ctx, nil)
	}
	if err := c.checkDriver(ctx); err != nil {
		return err
	}
	return observe(ctx)
}

// observeWhenUp calls the function observe when the runtime answers. It repeats the call until the function succeeds.
// It returns at once if the running pods are already known.
func (c *Containers) observeWhenUp(ctx context.Context, observe func(context.Context) error) error {
	for {
		if c.CheckPodsKnown() == nil {
			return nil
		}
		if err := c.Await(ctx); err != nil {
			return err
		}
		err := c.checkDriver(ctx)
		if err == nil {
			err = observe(ctx)
		}
		if errors.Is(err, errDriverChanged) || ctx.Err() != nil {
			return err
		}
		if err != nil {
			c.log.Warn("cannot list the running pods: no pod is started until that succeeds", "error", err)
			select {
			case <-time.After(observeRetry):
			case <-ctx.Done():
			}
		}
	}
}

// ObserveLoop returns a loop that calls the function observe as soon as the runtime answers, unless the running pods are
// already known. After that, the loop calls the function begin, and then runs the loop in the parameter next.
func (c *Containers) ObserveLoop(observe func(context.Context) error, begin func(context.Context), next Loop) Loop {
	return loopFunc(func(ctx context.Context) error {
		if err := c.observeWhenUp(ctx, observe); err != nil {
			return err
		}
		begin(ctx)
		return next.Run(ctx)
	})
}

// A Loop runs until ctx ends.
type Loop interface {
	Run(ctx context.Context) error
}

type loopFunc func(context.Context) error

func (f loopFunc) Run(ctx context.Context) error { return f(ctx) }

// Rotator returns the loop that rotates the logs of a remote runtime. For the runtime in this process the
// loop does nothing, because the shims rotate their logs.
func (c *Containers) Rotator(view podlogs.View) *podlogs.Rotator {
	if c.Endpoint == "" {
		return podlogs.New(podlogs.Config{})
	}
	k := c.cfg.Kubelet
	return podlogs.New(podlogs.Config{
		View: view, Reopen: c.reopenLog, Dir: k.PodLogsDir,
		MaxSize: c.cfg.ContainerLogMaxSize, MaxFiles: int(*k.ContainerLogMaxFiles),
		Workers: int(*k.ContainerLogMaxWorkers), Every: k.ContainerLogMonitorInterval.Duration, Log: c.log,
	})
}

// LogQuota returns the loop that limits the rotated logs of each pod to podLogQuota.
func (c *Containers) LogQuota() *podlogs.Quota {
	k := c.cfg.Kubelet
	return &podlogs.Quota{
		Dir: k.PodLogsDir, Bytes: c.cfg.PodLogQuota,
		Workers: int(*k.ContainerLogMaxWorkers), Every: k.ContainerLogMonitorInterval.Duration, Log: c.log,
	}
}

// errDriverChanged causes the agent to end and restart. The cgroup paths depend on the driver, and the next start
// computes them with the driver that the runtime now reports.
var errDriverChanged = errors.New("the container runtime reports another cgroup driver than islet assumed at its start: islet restarts")

// networkNotReady wraps the network's error in the message of a kubelet and containerd.
func networkNotReady(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("container runtime network not ready: NetworkReady=false reason:%s message:Network plugin returns error: %w",
		ctrd.NetworkPluginNotReady, err)
}
