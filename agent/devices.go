package agent

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device"
	"github.com/islet-edge/islet/agent/deviceplugin"
	"github.com/islet-edge/islet/agent/hardware"
	"github.com/islet-edge/islet/agent/plan"
	"github.com/islet-edge/islet/agent/podresources"
	"github.com/islet-edge/islet/agent/process"
)

// openDevices makes what gives devices to containers, with what the last run gave.
func (a *agent) openDevices(ctx context.Context) error {
	a.devices = device.New(device.Config{Store: a.store, Changed: a.devicesChanged, PodChanged: a.podDevicesChanged, Log: a.log})
	a.plugged = deviceplugin.New(deviceplugin.Config{Root: a.cfg.Dirs.Root, Devices: a.devices, Log: a.log})
	a.machine.SetDevices(a.devices)
	return a.devices.Load(ctx)
}

// openPlugins makes the sockets at which others bring devices, and ask who has them.
func (a *agent) openPlugins() (err error) {
	if err := a.plugged.Listen(); err != nil {
		return err
	}
	a.closers = append(a.closers, a.plugged.Close)
	if a.told, err = podresources.Open(podresources.Config{Root: a.cfg.Dirs.Root, Pods: a.pods.List, Devices: a.devices}); err != nil {
		return err
	}
	a.closers = append(a.closers, a.told.Close)
	return nil
}

// devicesChanged lets pods ask again that lack devices, and the API server learn at once of
// those that there are.
func (a *agent) devicesChanged() {
	a.hardware.Poke()
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

// openHardware says which devices of the host there are, if the configuration gives any to
// containers.
func (a *agent) openHardware(ctx context.Context) (err error) {
	a.hardware, err = hardware.Open(ctx, hardware.Config{
		Classes: a.cfg.Edge.Devices, Manager: a.devices, Meta: a.store, Events: a.events, Pod: a.wanted, Dir: filepath.Join(a.cfg.Dirs.Run, process.Devices), Log: a.log,
		Restart: func(uid types.UID, container string, grace time.Duration) {
			if last, ok := a.input(uid).Seen.Last(container); ok {
				a.workers.Restart(uid, container, plan.Ask{ID: last.ID, Grace: grace})
			}
		},
	})
	return err
}

// wanted gives a pod; nil: it is not wanted any more.
func (a *agent) wanted(uid types.UID) *v1.Pod {
	d, _ := a.desired.Get(uid)
	return d.Pod
}
