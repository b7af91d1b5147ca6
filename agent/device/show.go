package device

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/device/hardware"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/sorting"
)

// Show lists the devices of all resources. The configured devices of the host come first. If all is true, it also
// lists the host's other devices.
func (d *Devices) Show(all bool) ([]api.Device, error) {
	users := d.deviceUsers()
	out := []api.Device{}
	units, kept := d.Hardware.List()
	for _, u := range units {
		one := api.Device{
			Resource: u.Resource, ID: u.ID, Nodes: u.Nodes, State: api.DeviceFree, Users: users[[2]string{u.Resource, u.ID}],
		}
		if u.Shared > 1 {
			one.Shared = u.Shared
		}
		if len(one.Users) > 0 {
			one.State = api.DeviceUsed
		}
		if len(u.Nodes) == 0 {
			one.State, one.Message = api.DeviceAway, "the device is absent: its containers wait for it"
		}
		out = append(out, one)
	}
	for _, k := range kept {
		out = append(out, api.Device{Resource: k.Resource, Nodes: []string{k.Path}, State: api.DeviceKept, Message: k.Why})
	}
	for _, r := range d.Manager.List() {
		if d.Hardware.Serves(r.Name) {
			continue
		}
		for _, its := range r.Devices {
			one := api.Device{
				Resource: r.Name, ID: its.ID, State: api.DeviceFree, Message: its.Message, Users: users[[2]string{r.Name, its.ID}],
			}
			switch {
			case !its.Healthy:
				one.State = api.DeviceUnhealthy
			case len(one.Users) > 0:
				one.State = api.DeviceUsed
			}
			out = append(out, one)
		}
	}
	if !all {
		return out, nil
	}
	return withParts(out)
}

// deviceUsers lists the containers that have each device, by resource and device ID.
func (d *Devices) deviceUsers() map[[2]string][]string {
	users := map[[2]string][]string{}
	for _, h := range d.Manager.Holdings() {
		who := d.podName(h.UID) + "/" + h.Container
		for _, id := range h.IDs {
			if d.Hardware.Serves(h.Resource) {
				id = hardware.UnitOf(id)
			}
			if key := [2]string{h.Resource, id}; !slices.Contains(users[key], who) {
				users[key] = append(users[key], who)
			}
		}
	}
	return users
}

func (d *Devices) podName(uid types.UID) string {
	if p := d.c.Pod(uid); p != nil {
		return p.Namespace + "/" + p.Name
	}
	return string(uid)
}

// withParts completes a list of devices. It adds the attributes that the configuration can match to each device. It
// also adds the devices of the host that belong to no resource.
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
	sorting.StableBy(out, func(a, b api.Device) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	return out, nil
}

// sortKey orders the devices of resources before other devices.
func sortKey(d api.Device) int {
	if d.Resource == "" {
		return 1
	}
	return 0
}
