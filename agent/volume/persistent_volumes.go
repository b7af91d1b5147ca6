package volume

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

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
	"github.com/islet-edge/islet/internal/event"
)

// csiVolumes is the prefix of CSI volumes in volumesInUse. csiHandle separates the driver's name from the volume
// handle. Only volumes with a volume handle can be attached.
const (
	csiVolumes = "kubernetes.io/csi/"
	csiHandle  = "^"
)

// Config is the input of Open.
type Config struct {
	Config  *config.Config
	Store   *store.Store
	Labels  func() map[string]string // returns the labels of the Node
	Objects storage.Objects          // resolves claims to volumes
	Cluster *Cluster                 // nil if the node has no control plane
	Retry   func(types.UID)          // makes the pod's worker try again
	// Reject ends a pod that cannot run here. It returns false if the pod is already ending.
	Reject func(pod *v1.Pod, reason, message string) bool
	Label  func(user, role, kind, level string) (string, error) // see storage.Config.Label
	Events event.Sink
	Log    *slog.Logger
}

// A Cluster contains the connections to the control plane that volumes need.
type Cluster struct {
	Client  *kube.Client
	Objects *object.Cache
	Node    *node.Node
	Up      kube.LinkSignal // receives a value when the API server may be reachable again
}

// Claims connects the storage volumes, the CSI drivers and the node's CSINode object.
type Claims struct {
	*storage.Mounter
	drivers *csi.Drivers  // nil if the node has no control plane
	node    *csinode.Node // nil if the node has no control plane
}

// Open loads the list of volumes that are still mounted. It makes no network call.
func Open(ctx context.Context, c Config) (*Claims, error) {
	out, cfg := &Claims{}, storage.Config{
		Root: c.Config.Dirs.Root, Node: c.Config.Node.Name, Ledger: c.Store, Objects: c.Objects, Labels: c.Labels, Label: c.Label,
		LabelAll: c.Config.GateEnabled("SELinuxMount"),
		Claim:    object.EphemeralClaim, Period: c.Config.Kubelet.VolumeStatsAggPeriod.Duration, Log: c.Log,
		Event: func(p *v1.Pod, eventType, reason, message string) { c.Events.Pod(p, "", eventType, reason, message) },
	}
	var err error
	if c.Cluster != nil {
		if out.node, err = csinode.New(csinode.Config{
			Client: c.Cluster.Client, Name: c.Config.Node.Name, Node: c.Cluster.Node.LastKnown, Retry: c.Cluster.Up,
			Log: c.Log,
		}); err != nil {
			return nil, err
		}
		inUse := func(ctx context.Context, id string) error {
			return c.Cluster.Node.InUse(ctx, v1.UniqueVolumeName(id))
		}
		driver := func(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
			return kube.Get[storagev1.CSIDriver](ctx, c.Cluster.Client, "", name)
		}
		reject := func(p *v1.Pod, reason, message string) {
			if c.Reject(p, reason, message) {
				c.Events.Pod(p, "", v1.EventTypeWarning, reason, message)
			}
		}
		if out.drivers, err = csi.New(csi.Config{
			Root: c.Config.Dirs.Root, Node: c.Config.Node.Name, Objects: c.Cluster.Objects,
			Every: c.Config.PollPeriod(), Nodes: out.node, Driver: driver, InUse: inUse, Retry: c.Retry,
			Registered: func() { out.Mounter.RetryUnstage() }, Reject: reject, Log: c.Log,
		}); err != nil {
			return nil, err
		}
		cfg.Drivers, cfg.Resizer = append(cfg.Drivers, out.drivers), c.Cluster.Objects
	}
	out.Mounter, err = storage.New(ctx, cfg)
	return out, err
}

// Handle adds the plugin handlers of this package to the given map and returns this map.
func (c *Claims) Handle(handlers map[string]plugins.Handler) map[string]plugins.Handler {
	if c.drivers != nil {
		handlers[plugins.CSI] = c.drivers
	}
	return handlers
}

// Collectors returns the metrics of volumes and CSI drivers.
func (c *Claims) Collectors(pods func() []*v1.Pod) []prometheus.Collector {
	collectors := c.Mounter.Collectors(pods)
	if c.drivers != nil {
		collectors = append(collectors, c.drivers.Collectors()...)
	}
	return collectors
}

// NodeChanged must be called when the Node object may have changed. It wakes the loop that updates the CSINode. It
// may be called on a nil Claims.
func (c *Claims) NodeChanged() {
	if c != nil && c.node != nil {
		c.node.Poke()
	}
}

// VolumesInUse returns the attachable volumes that are mounted or being mounted, sorted by ID, for the Node's status.
// The attach-detach controller does not detach volumes that the status lists.
func (c *Claims) VolumesInUse() (ids []v1.UniqueVolumeName) {
	for _, id := range c.InUse() {
		if strings.HasPrefix(id, csiVolumes) && strings.Contains(id, csiHandle) {
			ids = append(ids, v1.UniqueVolumeName(id))
		}
	}
	return slices.Clip(ids)
}

// Run updates the CSINode and republishes volumes until ctx ends. It then closes the connections to the drivers.
func (c *Claims) Run(ctx context.Context) error {
	if c.node == nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.node.Run(ctx) })
	g.Go(func() error { return c.drivers.Run(ctx) })
	return errors.Join(g.Wait(), c.drivers.Close())
}
