package agent

import (
	"context"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device"
	"github.com/islet-edge/islet/agent/device/devicemanager"
	"github.com/islet-edge/islet/agent/device/hardware"
	"github.com/islet-edge/islet/agent/device/pinning"
	"github.com/islet-edge/islet/agent/host/process"
	"github.com/islet-edge/islet/agent/pod/plan"
)

// openDevices makes what gives devices to containers, with what the last run gave.
func (a *agent) openDevices(ctx context.Context) (err error) {
	a.devices, err = device.Open(ctx, device.Config{
		Root: a.cfg.Dirs.Root, Sockets: a.sockets, Store: a.store, Pods: func() []*v1.Pod { return a.pods.List() }, Pod: a.wanted,
		Config:  devicemanager.Config{Changed: a.devicesChanged, PodChanged: a.podDevicesChanged, Log: a.log},
		Pinning: pinning.Config{Config: a.cfg, Share: a.machine.Share(), Host: os.DirFS("/"), Freed: func() { a.pods.NodeChanged() }},
	})
	a.closers = append(a.closers, a.devices.Close)
	a.machine.SetDevices(a.devices)
	a.machine.SetExclusive(a.devices.Pinning.Exclusive)
	return err
}

// startDevices says which devices of the host there are, if the configuration gives any to
// containers, and makes what has drivers prepare claims.
func (a *agent) startDevices(ctx context.Context) error {
	var cluster *device.Cluster
	if api := a.objects.API; api != nil {
		cluster = &device.Cluster{Objects: api, Client: a.link.Client(), Node: a.cfg.Node.Name, Up: a.link.Changed()}
	}
	return a.devices.Start(ctx, cluster, hardware.Config{
		Classes: a.cfg.Edge.Devices, Meta: a.store, Events: a.events, Dir: filepath.Join(a.cfg.Dirs.Run, process.Devices), Log: a.log,
		Restart: func(uid types.UID, container string, grace time.Duration) {
			if last, ok := a.observer.Pod(uid).Last(container); ok {
				a.workers.Restart(uid, container, plan.Ask{ID: last.ID, Grace: grace})
			}
		},
	})
}

// wanted gives a pod; nil: it is not wanted any more.
func (a *agent) wanted(uid types.UID) *v1.Pod {
	d, _ := a.desired.Get(uid)
	return d.Pod
}

// devicesChanged lets pods ask again that lack devices, and the API server learn at once of
// those that there are.
func (a *agent) devicesChanged() {
	if a.workers != nil {
		a.pods.NodeChanged()
	}
	a.reportNode()
}

// podDevicesChanged shows how the devices of a pod are, and lets its containers start.
func (a *agent) podDevicesChanged(uid types.UID) {
	if a.workers != nil {
		a.pods.StatusChanged(uid)
		a.workers.RetryPod(uid)
	}
}
