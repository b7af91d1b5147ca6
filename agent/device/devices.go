package device

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/counts"
	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/device/deviceplugin"
	"github.com/islet-edge/islet/agent/device/dra"
	"github.com/islet-edge/islet/agent/device/hardware"
	"github.com/islet-edge/islet/agent/device/pinning"
	"github.com/islet-edge/islet/agent/device/podresources"
	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/resourceslice"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/socket"
)

// Store stores allocations and resource claims. *store.Store implements it.
type Store interface {
	devicemanager.Store
	dra.Store
	pinning.Store
}

// Config is the input of Open.
type Config struct {
	Root    string // --root-dir
	Sockets *socket.Sockets
	Store   Store
	Pods    func() []*v1.Pod        // the pods with their statuses; not called before Listen
	Pod     func(types.UID) *v1.Pod // returns a desired pod, or nil
	devicemanager.Config
	Pinning pinning.Config // Open sets Store, Devices and Log
}

// Devices manages the devices of this node.
type Devices struct {
	*devicemanager.Manager
	Plugins  *deviceplugin.Plugins
	Pinning  *pinning.Manager   // nil if no policy assigns exclusive CPUs or memory
	Dynamic  *dra.Manager       // nil before Start
	Hardware *hardware.Hardware // nil before Start and if no device is configured

	c            Config
	counts       *counts.Plugins
	slices       *resourceslice.Sweeper // nil if the node has no API server
	listening    bool                   // Plugins.Listen succeeded
	podResources *podresources.Server
}

// Open loads the stored allocations. It opens no socket.
func Open(ctx context.Context, c Config) (*Devices, error) {
	d := &Devices{c: c, counts: counts.NewPlugins()}
	changed := c.Config.Changed
	c.Config.Store, c.Config.Changed = c.Store, func() {
		d.Hardware.Poke()
		changed()
	}
	d.Manager = devicemanager.New(c.Config)
	d.Plugins = deviceplugin.New(deviceplugin.Config{
		Root: c.Root, Sockets: c.Sockets, Devices: d.Manager, Counter: d.counts, Log: c.Log,
	})
	if err := d.Load(ctx); err != nil {
		return d, err
	}
	p := c.Pinning
	p.Store, p.Devices, p.Log = c.Store, d.Manager, c.Log
	var err error
	d.Pinning, err = pinning.Open(ctx, p)
	return d, err
}

// NeedsAllocation reports whether a pod requests devices, exclusive CPUs or memory that are not allocated to it yet.
func (d *Devices) NeedsAllocation(pod *v1.Pod) bool {
	if d.Pinning != nil {
		return d.Pinning.NeedsAllocation(pod)
	}
	return d.Manager.NeedsAllocation(pod)
}

// Admit allocates the devices, exclusive CPUs and memory of a pod. See devicemanager.Manager.Admit.
func (d *Devices) Admit(ctx context.Context, pod *v1.Pod) (reason, refusal string, err error) {
	if d.Pinning != nil {
		return d.Pinning.Admit(ctx, pod)
	}
	return d.Manager.Admit(ctx, pod)
}

// A Cluster contains the parts through which resource claims use the control plane.
type Cluster struct {
	Objects dra.Objects
	Client  *kube.Client
	Node    string          // the Node's name
	Up      kube.LinkSignal // receives a value when the link may be up again
}

// Start loads the stored resource claims and finds the configured devices of the host. On a node without an API server,
// cluster is nil.
func (d *Devices) Start(ctx context.Context, cluster *Cluster, h hardware.Config) (err error) {
	c := dra.Config{Store: d.c.Store, PodChanged: d.c.PodChanged, Counter: d.counts, Log: d.c.Log}
	if cluster != nil {
		d.slices, err = resourceslice.New(resourceslice.Config{
			Client: cluster.Client, Node: cluster.Node, Retry: cluster.Up, Log: d.c.Log,
		})
		if err != nil {
			return err
		}
		c.Objects, c.Slices = cluster.Objects, d.slices
	}
	d.Dynamic = dra.New(c)
	if err := d.Dynamic.Load(ctx); err != nil {
		return err
	}
	h.Manager, h.Pod = d.Manager, d.c.Pod
	d.Hardware, err = hardware.Open(ctx, h)
	return err
}

// Handle adds the handlers of device plugins and DRA drivers to h and returns h.
func (d *Devices) Handle(h map[string]plugins.Handler) map[string]plugins.Handler {
	h[plugins.Device], h[plugins.DRA] = d.Plugins, d.Dynamic
	return h
}

// Listen opens the socket for device plugins and the socket of the pod resources API.
func (d *Devices) Listen() (err error) {
	if err := d.Plugins.Listen(); err != nil {
		return err
	}
	d.listening = true
	d.podResources, err = podresources.Open(podresources.Config{
		Root: d.c.Root, Sockets: d.c.Sockets, Pods: d.c.Pods, Devices: d.Manager, Claims: d.claimedDevices, Pinning: d.Pinning,
		Counter: d.counts.PodResources,
	})
	return err
}

// Close closes the sockets and connections, even if Run was not called.
func (d *Devices) Close() error {
	var errs []error
	if d.listening {
		errs = append(errs, d.Plugins.Close())
	}
	if d.podResources != nil {
		errs = append(errs, d.podResources.Close())
	}
	if d.Dynamic != nil {
		errs = append(errs, d.Dynamic.Close())
	}
	return errors.Join(errs...)
}

// Run serves the sockets and watches the devices of the host until ctx ends. It must be called after Listen.
func (d *Devices) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.Plugins.Run(ctx) })
	g.Go(func() error { return d.podResources.Run(ctx) })
	g.Go(func() error { return d.Hardware.Run(ctx) })
	g.Go(func() error { return d.Pinning.Run(ctx) })
	if d.slices != nil {
		g.Go(func() error { return d.slices.Run(ctx) })
	}
	return g.Wait()
}

// Collectors returns the metrics of plugins and drivers. It must be called after Start.
func (d *Devices) Collectors() []prometheus.Collector { return d.counts.Collectors(d.Dynamic.InUse) }

// Status returns the health of a container's devices, from all sources.
func (d *Devices) Status(pod *v1.Pod, ctr *v1.Container) []v1.ResourceStatus {
	return append(d.Manager.Status(pod.UID, ctr.Name), d.Dynamic.Status(pod, ctr)...)
}

// claimedDevices returns the devices that containers have through resource claims.
func (d *Devices) claimedDevices() (out []*podresources.ClaimDevices) {
	for _, pod := range d.c.Pods() {
		for _, ctr := range podspec.Containers(&pod.Spec) {
			uses, _ := d.Dynamic.Uses(pod, ctr) // empty if the claims are not prepared yet
			out = append(out, podresources.ByClaims(pod, ctr.Name, uses)...)
		}
	}
	return out
}
