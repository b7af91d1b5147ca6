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

// Store keeps what was given and claimed. *store.Store is one.
type Store interface {
	devicemanager.Store
	dra.Store
	pinning.Store
}

// Config is what Open needs.
type Config struct {
	Root    string // --root-dir
	Sockets *socket.Sockets
	Store   Store
	Pods    func() []*v1.Pod        // with their statuses; called once there are some
	Pod     func(types.UID) *v1.Pod // that is wanted; nil: none is
	devicemanager.Config
	Pinning pinning.Config // but for Store, Devices and Log
}

// Devices are those of this node.
type Devices struct {
	*devicemanager.Manager
	Plugins  *deviceplugin.Plugins
	Pinning  *pinning.Manager   // nil: no policy gives containers CPUs or memory of their own
	Dynamic  *dra.Manager       // nil before Start
	Hardware *hardware.Hardware // nil before Start, and if none is configured

	c       Config
	counts  *counts.Plugins
	slices  *resourceslice.Sweeper // nil: the node stands alone
	listening bool                   // Plugins do
	podResources    *podresources.Server
}

// Open takes over what the last run gave. It reaches nobody.
func Open(ctx context.Context, c Config) (*Devices, error) {
	d := &Devices{c: c, counts: counts.NewPlugins()}
	changed := c.Config.Changed
	c.Config.Store, c.Config.Changed = c.Store, func() {
		d.Hardware.Poke()
		changed()
	}
	d.Manager = devicemanager.New(c.Config)
	d.Plugins = deviceplugin.New(deviceplugin.Config{Root: c.Root, Sockets: c.Sockets, Devices: d.Manager, Counted: d.counts, Log: c.Log})
	if err := d.Load(ctx); err != nil {
		return d, err
	}
	p := c.Pinning
	p.Store, p.Devices, p.Log = c.Store, d.Manager, c.Log
	var err error
	d.Pinning, err = pinning.Open(ctx, p)
	return d, err
}

// Wants reports whether a pod asks for devices, or CPUs or memory of its own, that it does
// not have.
func (d *Devices) Wants(pod *v1.Pod) bool {
	if d.Pinning != nil {
		return d.Pinning.Wants(pod)
	}
	return d.Manager.Wants(pod)
}

// Admit gives it those; see devicemanager.Manager.Admit.
func (d *Devices) Admit(ctx context.Context, pod *v1.Pod) (reason, refusal string, err error) {
	if d.Pinning != nil {
		return d.Pinning.Admit(ctx, pod)
	}
	return d.Manager.Admit(ctx, pod)
}

// A Cluster is what claims need of the control plane.
type Cluster struct {
	Objects dra.Objects
	Client  *kube.Client
	Node    string          // its name
	Up      <-chan struct{} // the link may be up again
}

// Start makes what has claims prepared, and looks for the devices of the host. The cluster
// is nil of a node that stands alone.
func (d *Devices) Start(ctx context.Context, cluster *Cluster, h hardware.Config) (err error) {
	c := dra.Config{Store: d.c.Store, PodChanged: d.c.PodChanged, Counted: d.counts, Log: d.c.Log}
	if cluster != nil {
		if d.slices, err = resourceslice.New(resourceslice.Config{Client: cluster.Client, Node: cluster.Node, Retry: cluster.Up, Log: d.c.Log}); err != nil {
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

// Handle adds the types of plugins that bring devices.
func (d *Devices) Handle(h map[string]plugins.Handler) map[string]plugins.Handler {
	h[plugins.Device], h[plugins.DRA] = d.Plugins, d.Dynamic
	return h
}

// Listen makes the sockets at which others bring devices, and ask who has them.
func (d *Devices) Listen() (err error) {
	if err := d.Plugins.Listen(); err != nil {
		return err
	}
	d.listening = true
	d.podResources, err = podresources.Open(podresources.Config{Root: d.c.Root, Sockets: d.c.Sockets, Pods: d.c.Pods, Devices: d.Manager, Claims: d.claimedDevices, Own: d.Pinning})
	return err
}

// Close ends what Run did not.
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

// Run takes up devices until ctx ends, after Listen.
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

// Collectors are what is counted of plugins and drivers, after Start.
func (d *Devices) Collectors() []prometheus.Collector { return d.counts.Collectors(d.Dynamic.InUse) }

// Status says how the devices of a container are, however it got them.
func (d *Devices) Status(pod *v1.Pod, ctr *v1.Container) []v1.ResourceStatus {
	return append(d.Manager.Status(pod.UID, ctr.Name), d.Dynamic.Status(pod, ctr)...)
}

// claimedDevices is what containers have of claims.
func (d *Devices) claimedDevices() (out []*podresources.Claimed) {
	for _, pod := range d.c.Pods() {
		for _, ctr := range podspec.Containers(&pod.Spec) {
			uses, _ := d.Dynamic.Uses(pod, ctr) // of one that does not start yet there are none
			out = append(out, podresources.ByClaims(pod, ctr.Name, uses)...)
		}
	}
	return out
}
