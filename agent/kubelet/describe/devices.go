package describe

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/hardware"
	"github.com/islet-edge/islet/internal/api"
)

// Devices lists those that containers can ask for, built-in ones first; all: and then those
// of the host that no resource has.
func (a *Describer) Devices(all bool) ([]api.Device, error) {
	users := a.deviceUsers()
	out := []api.Device{}
	units, kept := a.c.Hardware.List()
	for _, u := range units {
		d := api.Device{Resource: u.Resource, ID: u.ID, Nodes: u.Nodes, State: api.DeviceFree, Users: users[[2]string{u.Resource, u.ID}]}
		if u.Shared > 1 {
			d.Shared = u.Shared
		}
		if len(d.Users) > 0 {
			d.State = api.DeviceUsed
		}
		if len(u.Nodes) == 0 {
			d.State, d.Message = api.DeviceAway, "it is not there: what has it waits"
		}
		out = append(out, d)
	}
	for _, k := range kept {
		out = append(out, api.Device{Resource: k.Resource, Nodes: []string{k.Path}, State: api.DeviceKept, Message: k.Why})
	}
	for _, r := range a.c.Devices.List() {
		if a.c.Hardware.Serves(r.Name) {
			continue
		}
		for _, one := range r.Devices {
			d := api.Device{Resource: r.Name, ID: one.ID, State: api.DeviceFree, Message: one.Message, Users: users[[2]string{r.Name, one.ID}]}
			switch {
			case !one.Healthy:
				d.State = api.DeviceUnhealthy
			case len(d.Users) > 0:
				d.State = api.DeviceUsed
			}
			out = append(out, d)
		}
	}
	if !all {
		return out, nil
	}
	return withParts(out)
}

// deviceUsers lists the containers that have a device, by resource and ID.
func (a *Describer) deviceUsers() map[[2]string][]string {
	users := map[[2]string][]string{}
	for _, h := range a.c.Devices.Held() {
		who := a.podName(h.UID) + "/" + h.Container
		for _, id := range h.IDs {
			if a.c.Hardware.Serves(h.Resource) {
				id = hardware.UnitOf(id)
			}
			if key := [2]string{h.Resource, id}; !slices.Contains(users[key], who) {
				users[key] = append(users[key], who)
			}
		}
	}
	return users
}

func (a *Describer) podName(uid types.UID) string {
	if p, ok := a.c.Desired.Get(uid); ok {
		return p.Pod.Namespace + "/" + p.Pod.Name
	}
	return string(uid)
}

// withParts adds what a match can name, and the devices that no resource has.
func withParts(out []api.Device) ([]api.Device, error) {
	parts, err := hardware.Parts("")
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		i := slices.IndexFunc(out, func(d api.Device) bool { return slices.Contains(d.Nodes, p.Path) })
		if i < 0 {
			out, i = append(out, api.Device{Nodes: []string{p.Path}, State: api.DeviceNone}), len(out)
		}
		if d := &out[i]; d.Nodes[0] == p.Path {
			d.Subsystem, d.Driver = p.Subsystem, p.Driver
			d.Vendor, d.Product, d.Serial, d.Name = p.Vendor, p.Product, p.Serial, p.Name
		}
	}
	slices.SortStableFunc(out, func(a, b api.Device) int { return cmp.Compare(order(a), order(b)) })
	return out, nil
}

// order has devices of resources first.
func order(d api.Device) int {
	if d.Resource == "" {
		return 1
	}
	return 0
}
