package volume

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/agent/volume/csi"
	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/edge/csinode"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/node"
	"github.com/islet-edge/islet/edge/object"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/config"
)

// patience is how long a volume waits for the API server to know that it is in use: a
// server that cannot be reached detaches nothing.
const patience = 5 * time.Second

// csiVolumes begin so in volumesInUse. Of those that are no driver's alone the handle
// follows csiHandle.
const (
	csiVolumes = "kubernetes.io/csi/"
	csiHandle  = "^"
)

// Config is what Open needs.
type Config struct {
	Config  *config.Config
	Store   *store.Store
	Labels  func() map[string]string // of the Node
	Objects storage.Objects          // what volumes are resolved by
	Cluster *Cluster                 // nil: the node stands alone
	Retry   func(types.UID)          // lets a pod try again
	// Reject ends a pod that cannot run here; false: it ends already.
	Reject func(pod *v1.Pod, reason, message string) bool
	Label  func(user, role, kind, level string) (string, error) // storage.Config's
	Events Events
	Log    *slog.Logger
}

// Events takes what people shall learn of a pod. *outbox.Events is one.
type Events interface {
	Pod(p *v1.Pod, container, eventType, reason, message string)
}

// A Cluster is what volumes need of the control plane.
type Cluster struct {
	Client  *kube.Client
	Objects *object.Cache
	Node    *node.Node
	Up      <-chan struct{} // the link may be up again
}

// Claims are the parts, connected.
type Claims struct {
	*storage.Keeper
	drivers *csi.Drivers  // nil: the node stands alone
	node    *csinode.Node // nil too
}

// Open takes over what is mounted. It asks nobody.
func Open(ctx context.Context, c Config) (*Claims, error) {
	out, cfg := &Claims{}, storage.Config{Root: c.Config.Dirs.Root, Node: c.Config.Node.Name, Ledger: c.Store, Objects: c.Objects, Labels: c.Labels, Label: c.Label, Claim: object.EphemeralClaim, Period: c.Config.Kubelet.VolumeStatsAggPeriod.Duration, Log: c.Log,
		Event: func(p *v1.Pod, eventType, reason, message string) { c.Events.Pod(p, "", eventType, reason, message) }}
	var err error
	if c.Cluster != nil {
		if out.node, err = csinode.New(csinode.Config{Client: c.Cluster.Client, Name: c.Config.Node.Name, Node: c.Cluster.Node.Last, Retry: c.Cluster.Up, Log: c.Log}); err != nil {
			return nil, err
		}
		inUse := func(ctx context.Context, id string) error {
			soon, stop := context.WithTimeout(ctx, patience)
			defer stop()
			_ = c.Cluster.Node.InUse(soon, v1.UniqueVolumeName(id))
			return ctx.Err()
		}
		driver := func(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
			return kube.Get[storagev1.CSIDriver](ctx, c.Cluster.Client, "", name)
		}
		reject := func(p *v1.Pod, reason, message string) {
			if c.Reject(p, reason, message) {
				c.Events.Pod(p, "", v1.EventTypeWarning, reason, message)
			}
		}
		if out.drivers, err = csi.New(csi.Config{Root: c.Config.Dirs.Root, Node: c.Config.Node.Name, Objects: c.Cluster.Objects, Every: c.Config.LooksEvery(), Nodes: out.node, Driver: driver, InUse: inUse, Retry: c.Retry, Reject: reject, Log: c.Log}); err != nil {
			return nil, err
		}
		cfg.Drivers, cfg.Resizer = append(cfg.Drivers, out.drivers), c.Cluster.Objects
	}
	out.Keeper, err = storage.New(ctx, cfg)
	return out, err
}

// Handle adds the handlers of plugins that mount volumes.
func (c *Claims) Handle(all map[string]plugins.Handler) map[string]plugins.Handler {
	if c.drivers != nil {
		all[plugins.CSI] = c.drivers
	}
	return all
}

// Collectors are what the metrics say of volumes.
func (c *Claims) Collectors(pods func() []*v1.Pod) []prometheus.Collector {
	all := c.Keeper.Collectors(pods)
	if c.drivers != nil {
		all = append(all, c.drivers.Collectors()...)
	}
	return all
}

// NodeChanged says that the Node may be another. It may be called before there is
// anything.
func (c *Claims) NodeChanged() {
	if c != nil && c.node != nil {
		c.node.Poke()
	}
}

// VolumesInUse are those that the Node says nobody may detach: of kinds that can be
// attached, sorted.
func (c *Claims) VolumesInUse() (ids []v1.UniqueVolumeName) {
	for _, id := range c.InUse() {
		if strings.HasPrefix(id, csiVolumes) && strings.Contains(id, csiHandle) {
			ids = append(ids, v1.UniqueVolumeName(id))
		}
	}
	return slices.Clip(ids)
}

// Run tells the cluster of this node's drivers until ctx ends, and then ends the
// connections to these.
func (c *Claims) Run(ctx context.Context) error {
	if c.node == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.node.Run(ctx) })
	g.Go(func() error { return c.drivers.Run(ctx) })
	return errors.Join(g.Wait(), c.drivers.Close())
}
