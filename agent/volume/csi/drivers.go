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

const pluginName = "kubernetes.io/csi"

// Limits of the properties that a driver reports. The API server has the same limits for a CSINode.
const (
	maxDriverName = 63
	maxNodeID     = 192
	maxTopology   = 32
)

// Objects returns the API objects that drivers depend on. *object.Cache implements it.
type Objects interface {
	// CSIDriver returns the CSIDriver object, which describes what the driver requires of a node.
	CSIDriver(pod *v1.Pod, name string) (*storagev1.CSIDriver, error)
	// RenewAttachment reads a VolumeAttachment from the API server. If the server cannot be reached, it returns the
	// last known copy, as Attachment does.
	RenewAttachment(ctx context.Context, pod *v1.Pod, name string) (*storagev1.VolumeAttachment, error)
	Attachment(pod *v1.Pod, name string) (*storagev1.VolumeAttachment, error)
	VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error)
	// VolumeToken returns a token of the pod's service account. If seconds is 0, the token has the default lifetime.
	VolumeToken(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (token string, expires time.Time, err error)
}

// Nodes publishes information about this node's drivers in the cluster. *csinode.Node implements it. Its methods
// never block.
type Nodes interface {
	Install(driver, nodeID string, limit int64, topology map[string]string)
	Uninstall(driver string)
}

// Config configures Drivers.
type Config struct {
	Root    string // --root-dir
	Node    string
	Objects Objects
	Nodes   Nodes // nil if drivers are not published
	// Volumes whose driver requires republishing are published again at this interval, with jitter.
	Every time.Duration
	// InUse is a function that waits until the Node's status lists the volume as in use. It may
	// be nil.
	InUse func(ctx context.Context, id string) error
	// Driver is a function that reads a CSIDriver object on behalf of the node. No pod is needed for this. If it is
	// nil, the volume limit of a driver does not change after the registration.
	Driver func(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	Retry  func(types.UID) // makes a pod that waits for a driver try again; must not block
	// Registered is called when a driver has registered. It must not block. It may be nil.
	Registered func()
	// Reject ends a pod that cannot run on this node. The reason is one that kubelets use. If Reject is nil, such a
	// pod waits.
	Reject func(pod *v1.Pod, reason, message string)
	Log    *slog.Logger
}

// Drivers contains the registered CSI drivers of this node. It implements storage.Driver and plugins.Handler.
type Drivers struct {
	cfg  Config
	root string // real path

	mu              sync.Mutex
	drivers         map[string]*driver            // by name
	waiting         map[string]map[types.UID]bool // UIDs of the pods that wait for a driver, by driver name
	published       map[string]*publishedVolume   // volumes that this process has published or adopted, by path
	callSeconds     *prometheus.HistogramVec      // of drivers
	republishSignal chan struct{}                 // capacity 1; receives a value when a volume requires republishing
	ctx             context.Context               // parent context of the drivers' limit loops
	cancel          context.CancelFunc
	loops           sync.WaitGroup
}

// A driver is a registered CSI driver.
type driver struct {
	plugins.Plugin
	version      *version.Version
	conn         *grpc.ClientConn
	node         spec.NodeClient
	capabilities map[spec.NodeServiceCapability_RPC_Type]bool
	limitSignal  chan struct{} // capacity 1; receives a value when the limit must be read again, see watchLimit
	hasPeriod    atomic.Bool   // the CSIDriver object sets an update period for the limit
	cancel       context.CancelFunc
}

// close stops the driver's limit loop and closes its connection.
func (n *driver) close() error {
	n.cancel()
	return n.conn.Close()
}

var (
	_ storage.Driver       = (*Drivers)(nil)
	_ storage.Stager       = (*Drivers)(nil)
	_ storage.PathProvider = (*Drivers)(nil)
	_ plugins.Handler      = (*Drivers)(nil)
)

// New validates the configuration. It starts no goroutine.
func New(cfg Config) (*Drivers, error) {
	if cfg.Root == "" || cfg.Node == "" || cfg.Objects == nil || cfg.Log == nil {
		return nil, errors.New("csi: Root, Node, Objects and Log must be set")
	}
	cfg.Every = cmp.Or(cfg.Every, republishEvery)
	if cfg.Retry == nil {
		cfg.Retry = func(types.UID) {}
	}
	if cfg.Registered == nil {
		cfg.Registered = func() {}
	}
	root, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("find the root directory: %w", err)
	}
	d := &Drivers{
		cfg: cfg, root: root, drivers: map[string]*driver{}, waiting: map[string]map[types.UID]bool{},
		published: map[string]*publishedVolume{}, callSeconds: newCallSeconds(), republishSignal: make(chan struct{}, 1),
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d, nil
}

// Validate returns an error if the driver's name or version cannot be used.
func (d *Drivers) Validate(p plugins.Plugin) error {
	_, err := d.selectVersion(p)
	return err
}

func (d *Drivers) selectVersion(p plugins.Plugin) (*version.Version, error) {
	if problems := validation.IsDNS1123Subdomain(strings.ToLower(p.Name)); len(problems) > 0 || len(p.Name) > maxDriverName {
		return nil, fmt.Errorf("%q is not a valid name for a CSI driver: it has at most %d characters: letters, digits, hyphens and dots",
			p.Name, maxDriverName)
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

// Register connects to a driver, reads its node ID and capabilities, and makes it available to
// pods.
func (d *Drivers) Register(ctx context.Context, p plugins.Plugin) error {
	v, err := d.selectVersion(p)
	if err != nil {
		return err
	}
	conn, err := plugins.Dial(p.Endpoint)
	if err != nil {
		return err
	}
	n := &driver{
		Plugin: p, version: v, conn: conn, node: spec.NewNodeClient(countedConn{conn, p.Name, d.callSeconds}),
		limitSignal: make(chan struct{}, 1),
	}
	var life context.Context
	life, n.cancel = context.WithCancel(d.ctx)
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	info, err := n.handshake(ctx)
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
	d.publishDriver(p.Name, info)
	if d.cfg.Driver != nil && d.cfg.Nodes != nil {
		d.loops.Go(func() { d.watchLimit(life, n, info) })
	}
	d.mu.Unlock()
	if before != nil {
		_ = before.close() // the driver's program may have ended
	}
	for uid := range waiting {
		d.cfg.Retry(uid)
	}
	d.cfg.Registered()
	return nil
}

// publishDriver publishes the driver's node ID, volume limit and topology in the cluster.
func (d *Drivers) publishDriver(name string, info *spec.NodeGetInfoResponse) {
	if d.cfg.Nodes != nil {
		d.cfg.Nodes.Install(name, info.GetNodeId(), info.GetMaxVolumesPerNode(), info.GetAccessibleTopology().GetSegments())
	}
}

// nodeInfo calls NodeGetInfo and validates the response.
func (n *driver) nodeInfo(ctx context.Context) (*spec.NodeGetInfoResponse, error) {
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	info, err := n.node.NodeGetInfo(ctx, &spec.NodeGetInfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("NodeGetInfo: %w", err)
	}
	if id := info.GetNodeId(); id == "" || len(id) > maxNodeID {
		return nil, fmt.Errorf("the driver returned a node ID of %d characters: it must have 1 to %d", len(id), maxNodeID)
	}
	segments := info.GetAccessibleTopology().GetSegments()
	if len(segments) > maxTopology {
		return nil, fmt.Errorf("the driver returned a topology of %d keys: at most %d are allowed", len(segments), maxTopology)
	}
	for key, value := range segments {
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return nil, fmt.Errorf("the driver's topology %.64q: %.64q is not a valid label: %s", key, value, problems[0])
		}
	}
	return info, nil
}

// handshake reads the driver's node information and its capabilities.
func (n *driver) handshake(ctx context.Context) (*spec.NodeGetInfoResponse, error) {
	info, err := n.nodeInfo(ctx)
	if err != nil {
		return nil, err
	}
	caps, err := n.node.NodeGetCapabilities(ctx, &spec.NodeGetCapabilitiesRequest{})
	if err != nil {
		return nil, fmt.Errorf("NodeGetCapabilities: %w", err)
	}
	n.capabilities = map[spec.NodeServiceCapability_RPC_Type]bool{}
	for _, c := range caps.GetCapabilities() {
		if rpc := c.GetRpc(); rpc != nil && len(n.capabilities) < 64 {
			n.capabilities[rpc.GetType()] = true
		}
	}
	return info, nil
}

// Deregister removes a driver. It does nothing if the driver has registered with another socket in the meantime.
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
	_ = has.close() // the driver's program has ended
	if d.cfg.Nodes != nil {
		d.cfg.Nodes.Uninstall(p.Name)
	}
}

// Close closes the connections to all drivers.
func (d *Drivers) Close() error {
	d.cancel()
	defer d.loops.Wait() // runs after mu is unlocked
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, n := range d.drivers {
		errs = append(errs, n.close())
	}
	clear(d.drivers)
	return errors.Join(errs...)
}

// errUnregistered means that a driver is not registered. It may register later.
var errUnregistered = errors.New("not found in the list of registered CSI drivers")

// findDriver returns the registered driver with the given name. If there is none, it returns an error, and the pod
// is retried when the driver registers.
func (d *Drivers) findDriver(name string, pod types.UID) (*driver, error) {
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
