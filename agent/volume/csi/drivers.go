package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/agent/volume/storage"
)

const (
	pluginName = "kubernetes.io/csi"
	// callTime is how long a driver may take for one call, as in a kubelet.
	callTime = 2 * time.Minute
)

// Bounds of what a driver says of itself, those of the API server for CSINode.
const (
	maxDriverName = 63
	maxNodeID     = 192
	maxTopology   = 32
)

// Objects gives what drivers need of the API. edge/object's Cache is one.
type Objects interface {
	// CSIDriver gives the object by which a driver says how it wants to be used.
	CSIDriver(pod *v1.Pod, name string) (*storagev1.CSIDriver, error)
	// RenewAttachment reads a VolumeAttachment anew, or gives it as it was when the API
	// server cannot be reached; Attachment gives it as it was last read.
	RenewAttachment(ctx context.Context, pod *v1.Pod, name string) (*storagev1.VolumeAttachment, error)
	Attachment(pod *v1.Pod, name string) (*storagev1.VolumeAttachment, error)
	VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error)
	// VolumeToken gives a token of the pod's service account; seconds of 0 is what is usual.
	VolumeToken(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (token string, expires time.Time, err error)
}

// Nodes tells the cluster which drivers this node has. *csinode.Node is one. It never
// blocks.
type Nodes interface {
	Install(driver, nodeID string, limit int64, topology map[string]string)
	Uninstall(driver string)
}

// Config is what Drivers needs.
type Config struct {
	Root    string // --root-dir
	Node    string // its name
	Objects Objects
	Nodes   Nodes // nil: nobody is told
	// Every is about how often a volume is published again whose driver wants that; 0: 80 s.
	Every time.Duration
	// InUse waits until the Node's status says that a volume is in use; nil: nobody is told.
	InUse func(ctx context.Context, id string) error
	// Driver reads a CSIDriver, no pod's in particular; nil: the limits of drivers stay as
	// they said when they registered.
	Driver func(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	Retry  func(types.UID) // lets a pod try again that waited for a driver; must not block
	// Reject ends a pod that cannot run here, with a kubelet's reason; nil: it waits.
	Reject func(pod *v1.Pod, reason, message string)
	Log    *slog.Logger
}

// Drivers are the CSI drivers of this node. It is a storage.Driver, and a plugins.Handler.
type Drivers struct {
	cfg  Config
	root string // real path

	mu      sync.Mutex
	drivers map[string]*driver            // by name
	waiting map[string]map[types.UID]bool // pods, by the driver that they wait for
	uses    map[string]*published         // of this run of the agent, by path
	calls   *prometheus.HistogramVec      // of drivers
	again   chan struct{}                 // capacity 1: there is a volume to publish again and again
	ctx     context.Context               // of what drivers are asked again and again
	end     context.CancelFunc
	all     sync.WaitGroup
}

// A driver is one that is registered.
type driver struct {
	plugins.Plugin
	version *version.Version
	conn    *grpc.ClientConn
	node    spec.NodeClient
	can     map[spec.NodeServiceCapability_RPC_Type]bool
	ask     chan struct{} // capacity 1: see limits
	timed   atomic.Bool   // whether its CSIDriver is known to have a period
	stop    context.CancelFunc
}

// close ends what is asked of a driver.
func (n *driver) close() error {
	n.stop()
	return n.conn.Close()
}

var (
	_ storage.Driver  = (*Drivers)(nil)
	_ storage.Stager  = (*Drivers)(nil)
	_ storage.Placer  = (*Drivers)(nil)
	_ plugins.Handler = (*Drivers)(nil)
)

// New starts nothing.
func New(cfg Config) (*Drivers, error) {
	if cfg.Root == "" || cfg.Node == "" || cfg.Objects == nil || cfg.Log == nil {
		return nil, errors.New("csi: a part of the configuration is missing")
	}
	cfg.Every = cmp.Or(cfg.Every, republishEvery)
	if cfg.Retry == nil {
		cfg.Retry = func(types.UID) {}
	}
	root, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("find the root directory: %w", err)
	}
	d := &Drivers{cfg: cfg, root: root, drivers: map[string]*driver{}, waiting: map[string]map[types.UID]bool{}, uses: map[string]*published{}, calls: newCalls(), again: make(chan struct{}, 1)}
	d.ctx, d.end = context.WithCancel(context.Background())
	return d, nil
}

// Validate says what is wrong with a driver.
func (d *Drivers) Validate(p plugins.Plugin) error {
	_, err := d.validate(p)
	return err
}

func (d *Drivers) validate(p plugins.Plugin) (*version.Version, error) {
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(p.Name)); len(problems) > 0 || len(p.Name) > maxDriverName {
		return nil, fmt.Errorf("%q is no name of a CSI driver: at most %d characters, which are letters, digits, - and dots", p.Name, maxDriverName)
	}
	v, err := version.HighestSupportedVersion(p.Versions)
	if err != nil {
		return nil, fmt.Errorf("none of the versions specified %q are supported: %w", p.Versions, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if has := d.drivers[p.Name]; has != nil && has.Socket != p.Socket && !has.version.LessThan(v) {
		return nil, fmt.Errorf("another driver with the same name is already registered with a higher supported version: %q", has.version)
	}
	return v, nil
}

// Register takes a driver up once it has said who it is.
func (d *Drivers) Register(ctx context.Context, p plugins.Plugin) error {
	v, err := d.validate(p)
	if err != nil {
		return err
	}
	conn, err := plugins.Dial(p.Endpoint)
	if err != nil {
		return err
	}
	n := &driver{Plugin: p, version: v, conn: conn, node: spec.NewNodeClient(counted{conn, p.Name, d.calls}), ask: make(chan struct{}, 1)}
	var life context.Context
	life, n.stop = context.WithCancel(d.ctx)
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	info, err := n.meet(ctx)
	if err != nil {
		return errors.Join(err, n.close())
	}
	d.mu.Lock()
	if d.ctx.Err() != nil {
		d.mu.Unlock()
		return errors.Join(d.ctx.Err(), n.close())
	}
	before := d.drivers[p.Name]
	d.drivers[p.Name] = n
	waiting := d.waiting[p.Name]
	delete(d.waiting, p.Name)
	d.install(p.Name, info)
	if d.cfg.Driver != nil && d.cfg.Nodes != nil {
		d.all.Go(func() { d.limits(life, n, info) })
	}
	d.mu.Unlock()
	if before != nil {
		_ = before.close() // the driver may be gone
	}
	for uid := range waiting {
		d.cfg.Retry(uid)
	}
	return nil
}

// install tells the cluster what a driver says of this node.
func (d *Drivers) install(name string, info *spec.NodeGetInfoResponse) {
	if d.cfg.Nodes != nil {
		d.cfg.Nodes.Install(name, info.GetNodeId(), info.GetMaxVolumesPerNode(), info.GetAccessibleTopology().GetSegments())
	}
}

// info asks a driver what this node is to it.
func (n *driver) info(ctx context.Context) (*spec.NodeGetInfoResponse, error) {
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	info, err := n.node.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("NodeGetInfo: %w", err)
	}
	if id := info.GetNodeId(); id == "" || len(id) > maxNodeID {
		return nil, fmt.Errorf("the driver gives this node an ID of %d characters, not of 1 to %d", len(id), maxNodeID)
	}
	segments := info.GetAccessibleTopology().GetSegments()
	if len(segments) > maxTopology {
		return nil, fmt.Errorf("the driver gives this node a topology of %d keys, more than %d", len(segments), maxTopology)
	}
	for key, value := range segments {
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return nil, fmt.Errorf("the driver's topology %.64q: %.64q is no label: %s", key, value, problems[0])
		}
	}
	return info, nil
}

// meet asks a driver what this node is to it, and what it can do.
func (n *driver) meet(ctx context.Context) (*spec.NodeGetInfoResponse, error) {
	info, err := n.info(ctx)
	if err != nil {
		return nil, err
	}
	caps, err := n.node.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("NodeGetCapabilities: %w", err)
	}
	n.can = map[spec.NodeServiceCapability_RPC_Type]bool{}
	for _, c := range caps.GetCapabilities() {
		if rpc := c.GetRpc(); rpc != nil && len(n.can) < 64 {
			n.can[rpc.GetType()] = true
		}
	}
	return info, nil
}

// Deregister forgets a driver, unless it has registered elsewhere since.
func (d *Drivers) Deregister(p plugins.Plugin) {
	d.mu.Lock()
	has := d.drivers[p.Name]
	ours := has != nil && has.Socket == p.Socket
	if ours {
		delete(d.drivers, p.Name)
	}
	d.mu.Unlock()
	if !ours {
		return
	}
	_ = has.close() // the driver is gone
	if d.cfg.Nodes != nil {
		d.cfg.Nodes.Uninstall(p.Name)
	}
}

// Close ends the connections to all drivers.
func (d *Drivers) Close() error {
	d.end()
	defer d.all.Wait() // after mu
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, n := range d.drivers {
		errs = append(errs, n.close())
	}
	clear(d.drivers)
	return errors.Join(errs...)
}

// errUnregistered is that of a driver which may come.
var errUnregistered = errors.New("not found in the list of registered CSI drivers")

// find gives a driver that is registered. Whichever pod asks in vain is told when it is.
func (d *Drivers) find(name string, pod types.UID) (*driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.drivers[name]; n != nil {
		return n, nil
	}
	if pod != "" {
		if d.waiting[name] == nil {
			d.waiting[name] = map[types.UID]bool{}
		}
		d.waiting[name][pod] = true
	}
	return nil, fmt.Errorf("driver name %s %w", name, errUnregistered)
}
