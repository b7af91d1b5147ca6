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
	"github.com/islet-edge/islet/agent/engine/rotate"
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

// Config is what Open needs.
type Config struct {
	*config.Config
	Store          *store.Store // of leases and imports, and of which runtime it was
	ImagesChanged  func()       // must not block
	ImagesRemoved  func()
	NetworkChanged func() // must not block
	// Leaving is called with a runtime that is left, before what is in it of the node's pods
	// is removed. An error keeps all of it.
	Leaving func(ctx context.Context, rt cri.Runtime) error
	Tell    func(warning bool, reason, message string) // an event of the node
	Hold    bool                                       // the agent is on trial: see cni.Config
	Link    *link.Link                                 // for the time, and whether pulls can work
	Log     *slog.Logger
}

// Containers is what runs the containers.
type Containers struct {
	Runtime cri.Runtime
	Streams cri.Runtime // the same, as a cri.Streamer
	Images  cri.Images
	Network Network

	Operations   *operations.Operations // that Runtime and Images were asked
	CgroupDriver string                 // of the runtime
	Cgroups      *cgroup.Recent         // that the runtime reads, for others who measure
	Endpoint     string                 // of the runtime; empty: it is in this process
	Left         string                 // what a runtime of before keeps; empty: nothing is known

	backend
	observed chan struct{} // closed once the agent knows what runs
	moveError error         // why it is not the runtime that the configuration names
	cfg   *config.Config
	log   *slog.Logger
}

// Network is where pods get their network from. *cni.Network is one.
type Network interface {
	Run(ctx context.Context) error
	Stale(sandbox string) bool
	SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error
	PodCIDRs() []netip.Prefix
	Config() string
	Problem() error
	Repairs() cni.Repairs
	Clean(ctx context.Context) error
}

// Imports are those of image archives that go on.
type Imports interface {
	// WaitImage returns once no import that goes on can bring the image, or when ctx has ended.
	WaitImage(ctx context.Context, image string) error
}

// A backend is what differs between the runtime in this process and one behind a socket.
type backend interface {
	// Admits is why no pod gets a network of its own now, as a kubelet words it; nil:
	// they do.
	Admits() error
	// Ready is the same of the node as a whole.
	Ready() error
	// Answers reports whether the runtime does, and Await returns once it does.
	Answers() bool
	Await(ctx context.Context) error
	// Reconcile frees what belongs to sandboxes that are gone. It is called before any
	// pod starts.
	Reconcile(ctx context.Context) error
	// Imports lets a pod wait for an archive that may bring its image; nil: none does.
	Imports() Imports
	Going() []agentapi.Import
	FailedArchives() []agentapi.Import
	Run(ctx context.Context) error
	// Close leaves the containers running.
	Close() error
}

// Open starts or reaches the runtime. One that was in use before and is not to be any
// more has the node's pods ended first.
func Open(ctx context.Context, a Config) (*Containers, error) {
	used, err := loadRecord(ctx, a)
	if err != nil {
		return nil, err
	}
	now, stays, err := move(ctx, a, used)
	if err != nil {
		return nil, err
	}
	c, err := open(ctx, a, now.Endpoint)
	if err != nil {
		return nil, err
	}
	c.Left, c.moveError, c.observed, c.log, c.cfg = now.Left, stays, make(chan struct{}), a.Log, a.Config
	if c.Endpoint != "" {
		c.CgroupDriver = now.driver(a, c.backend.(*remoteBackend).Runtime)
	}
	if err := now.save(ctx, a); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// open opens the runtime at endpoint; empty: that in this process.
func open(ctx context.Context, a Config, endpoint string) (*Containers, error) {
	cgroups := cgroup.NewRecent(cgroup.NewReader(cgroup.Mountpoint), time.Second)
	if endpoint != "" {
		return openRemote(ctx, a, endpoint, cgroups)
	}
	return openNative(ctx, a, cgroups)
}

// Problems are what is worth an administrator's attention.
func (c *Containers) Problems() (out []string) {
	for _, err := range []error{c.moveError, c.Network.Problem()} {
		if err != nil {
			out = append(out, err.Error())
		}
	}
	for _, item := range c.Network.Repairs().Contested {
		out = append(out, "another program removes or changes the "+item+" of the pod network again and again; islet repairs it at growing intervals")
	}
	return out
}

// name is what the runtime calls itself, such as containerd or cri-o; empty: it does not
// say now.
func (c *Containers) name(ctx context.Context) string {
	v, err := c.Runtime.Version(ctx, &api.VersionRequest{})
	if err != nil {
		return ""
	}
	return v.RuntimeName
}

// Own are the pods of a list that the agent, or a tool at its socket, made. In a runtime
// behind a socket there may be others.
func (c *Containers) Own(list []*api.PodSandbox) (own []*api.PodSandbox) {
	for _, s := range list {
		if c.Endpoint == "" || s.Labels[keys.PodUID] != "" && s.Annotations[keys.Started] != "" {
			own = append(own, s)
		}
	}
	return own
}

// reopenLog has a container's log written to a new file.
func (c *Containers) reopenLog(ctx context.Context, id string) error {
	_, err := c.Runtime.ReopenContainerLog(ctx, &api.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// observeRetry is how soon a look is repeated that failed.
const observeRetry = time.Second

// Looked notes that the agent knows what runs; called takes what the runtime calls itself.
func (c *Containers) Looked(ctx context.Context, called func(string)) {
	called(c.name(ctx))
	close(c.observed)
}

// Known is nil once the agent knows what runs.
func (c *Containers) Known() error {
	select {
	case <-c.observed:
		return nil
	default:
		return fmt.Errorf("%s does not answer: start it first", title(c.Endpoint))
	}
}

// Look has look learn what runs, if the runtime answers. Else After does so later, and
// load takes what is known without.
func (c *Containers) Look(ctx context.Context, observe func(context.Context) error, load func(context.Context, []types.UID) error) error {
	if !c.Answers() {
		return load(ctx, nil)
	}
	if err := c.checkDriver(ctx); err != nil {
		return err
	}
	return observe(ctx)
}

// observeWhenUp waits for the runtime and has look succeed, unless what it learns is known already.
func (c *Containers) observeWhenUp(ctx context.Context, observe func(context.Context) error) error {
	for {
		if c.Known() == nil {
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
			c.log.Warn("what runs is not known yet, so no pod is started", "error", err)
			select {
			case <-time.After(observeRetry):
			case <-ctx.Done():
			}
		}
	}
}

// After is a loop that has look learn what runs, if it is not known, as soon as the
// runtime answers; then it calls begin, and runs next.
func (c *Containers) After(observe func(context.Context) error, begin func(context.Context), next Loop) Loop {
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

// Rotator rotates the logs of containers that a runtime behind a socket writes. The shims
// of the one in this process do so themselves.
func (c *Containers) Rotator(view rotate.View) *rotate.Rotator {
	if c.Endpoint == "" {
		return rotate.New(rotate.Config{})
	}
	k := c.cfg.Kubelet
	return rotate.New(rotate.Config{View: view, Reopen: c.reopenLog, Dir: k.PodLogsDir, MaxSize: c.cfg.ContainerLogMaxSize, MaxFiles: int(*k.ContainerLogMaxFiles),
		Workers: int(*k.ContainerLogMaxWorkers), Every: k.ContainerLogMonitorInterval.Duration, Log: c.log})
}

// LogQuota keeps the rotated logs of each pod within podLogQuota.
func (c *Containers) LogQuota() *rotate.Quota {
	k := c.cfg.Kubelet
	return &rotate.Quota{Dir: k.PodLogsDir, Bytes: c.cfg.PodLogQuota, Workers: int(*k.ContainerLogMaxWorkers), Every: k.ContainerLogMonitorInterval.Duration, Log: c.log}
}

// errDriverChanged ends the agent, whose next start knows better.
var errDriverChanged = errors.New("the container runtime makes cgroups by another driver than was known while it did not answer: islet starts anew")

// checkDriver fails when the runtime is another than it was taken for.
func (c *Containers) checkDriver(ctx context.Context) error {
	d, isRemote := c.backend.(*remoteBackend)
	if !isRemote {
		return nil
	}
	driver, err := d.CgroupDriver(ctx)
	if err == nil && driver != "" && driver != c.CgroupDriver {
		return fmt.Errorf("%w (%s, not %s)", errDriverChanged, driver, c.CgroupDriver)
	}
	return err
}

// networkNotReady words the network's error as a kubelet and containerd do.
func networkNotReady(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("container runtime network not ready: NetworkReady=false reason:%s message:Network plugin returns error: %w", ctrd.NetworkPluginNotReady, err)
}

func parallelPulls(cfg *config.Config) int {
	if n := cfg.Kubelet.MaxParallelImagePulls; n != nil {
		return int(*n)
	}
	return 0
}
