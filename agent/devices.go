package agent

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device"
)

// openDevices makes what gives devices to containers, with what the last run gave.
func (a *agent) openDevices(ctx context.Context) error {
	a.devices = device.New(device.Config{Store: a.store, Changed: a.devicesChanged, PodChanged: a.podDevicesChanged, Log: a.log})
	a.machine.SetDevices(a.devices)
	return a.devices.Load(ctx)
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
