package agent

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/change/configure"
	"github.com/islet-edge/islet/agent/change/update"
	"github.com/islet-edge/islet/agent/cluster"
	"github.com/islet-edge/islet/agent/device"
	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/device/pinning"
	"github.com/islet-edge/islet/agent/pod/machine"
	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/link"
	"github.com/islet-edge/islet/edge/outbox"
	"github.com/islet-edge/islet/edge/twin"
	"github.com/islet-edge/islet/net/uplink"
	"github.com/islet-edge/islet/runtime/apparmor"
	"github.com/islet-edge/islet/runtime/selinux"
)

// A node contains the node's facts, its desired pods, its link to the API server, and the parts that update its configuration and program.
type node struct {
	*disk
	machine *machine.Machine
	desired *desired.Desired
	devices *device.Devices
	link    *link.Link
	uplink  *uplink.Uplink
	twin    *twin.Twin // nil if the node has no API server
	events  *outbox.Events
	keeper  *configure.Keeper
	updater *update.Updater
}

func openNode(ctx context.Context, d *disk) (n *node, err error) {
	n = &node{disk: d}
	if n.machine, err = machine.New(ctx, n.cfg, n.store, apparmor.New(n.log).Enabled(), selinux.New().Enabled()); err != nil {
		return nil, err
	}
	n.machine.SetPressures(n.laterParts.pressureConditions)
	if n.desired, err = desired.New(desired.Config{
		Store: n.store, Poke: n.desiredPodChanged, Hold: n.configStart.HoldsPods(n.cfg), Log: n.log,
	}); err != nil {
		return nil, fmt.Errorf("load the desired pods: %w", err)
	}
	cluster.FindLeft(n.cfg, n.desired.List())
	if err := n.openDevices(ctx); err != nil {
		return nil, err
	}
	if n.link, n.uplink, n.twin, err = cluster.OpenLink(ctx, n.cfg, n.machine.IPs(), n.store, n.log); err != nil {
		return nil, fmt.Errorf("open the link to the API server: %w", err)
	}
	if n.events, err = n.newEvents(); err != nil {
		return nil, err
	}
	if n.keeper, err = configure.Open(configure.Config{
		Config: n.cfg, Start: n.configStart, Version: n.version, IsNewer: update.IsNewer, Events: n.events, Changed: n.laterParts.pokeNode,
		End: n.restartAgent, Now: n.link.Now, Log: n.log,
	}); err != nil {
		return nil, err
	}
	n.updater, err = update.Open(n.cfg, n.version, n.keeper, n.link.Now, n.laterParts.flashExceeded, n.log)
	return n, err
}

// openDevices opens the device managers with the allocations that were stored.
func (n *node) openDevices(ctx context.Context) (err error) {
	n.devices, err = device.Open(ctx, device.Config{
		Root: n.cfg.Dirs.Root, Sockets: n.sockets, Store: n.store, Pods: n.laterParts.listPods, Pod: n.desiredPod,
		Config: devicemanager.Config{Changed: n.devicesChanged, PodChanged: n.podDevicesChanged, Log: n.log},
		Pinning: pinning.Config{
			Config: n.cfg, Share: n.machine.Share(), Host: os.DirFS("/"), OnRelease: n.laterParts.nodeChanged,
		},
	})
	n.addCloser(n.devices.Close)
	n.machine.SetDevices(n.devices)
	n.machine.SetExclusive(n.devices.Pinning.Exclusive)
	return err
}

// newEvents returns the recorder of events. On a node that stands alone only islet describe and islet status show the events.
func (n *node) newEvents() (*outbox.Events, error) {
	k := &n.cfg.Kubelet
	c := outbox.EventsConfig{
		Node: n.cfg.Node.Name, NodeUID: n.laterParts.nodeUID,
		QPS: float64(*k.EventRecordQPS), Burst: int(k.EventBurst), Now: n.link.Now, Store: n.store,
		SaveWrites: n.laterParts.flashExceeded, Log: n.log,
	}
	if !n.cfg.Standalone() {
		c.Client, c.Retry = n.link.Client(), n.link.Changed()
	}
	return outbox.NewEvents(c)
}

// desiredPod returns a desired pod. It is nil if no source wants the pod any more.
func (n *node) desiredPod(uid types.UID) *v1.Pod {
	d, _ := n.desired.Get(uid)
	return d.Pod
}

// desiredPodChanged is called when a desired pod has changed. It also marks the pod's volumes as outdated, because
// downwardAPI volumes may contain the labels and annotations of the pod.
func (n *node) desiredPodChanged(uid types.UID) {
	n.laterParts.pokePod(uid)
	if o := n.laterParts.objects.get(); o != nil {
		o.MarkOutdated(uid)
	}
}

// devicesChanged decides again about the pods that were rejected for lack of devices, and updates the Node's resources.
func (n *node) devicesChanged() {
	n.laterParts.nodeChanged()
	n.laterParts.pokeNode()
}

// podDevicesChanged updates the status of a pod. It also retries to start the pod's containers, because they may have
// been waiting for devices.
func (n *node) podDevicesChanged(uid types.UID) {
	n.laterParts.statusChanged(uid)
	n.laterParts.retryPod(uid)
}
