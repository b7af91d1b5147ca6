package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// A Use is one device that a container has through a claim.
type Use struct {
	Claim  string // name of the ResourceClaim, in the pod's namespace
	Driver string
	Device Device
}

// Uses lists the devices that a container has through claims, without duplicates. They are sorted by claim and driver
// and then in the driver's order. It returns an error if a claim is not prepared.
func (m *Manager) Uses(pod *v1.Pod, ctr *v1.Container) ([]Use, error) {
	requests, err := podspec.ClaimRequests(pod, ctr)
	if err != nil || len(requests) == 0 {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Use
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		c := m.findClaim(pod, name)
		if c == nil {
			return nil, fmt.Errorf("ResourceClaim %s is not prepared", name)
		}
		for _, d := range slices.Sorted(maps.Keys(c.parts)) {
			for _, dev := range c.parts[d].devices {
				if slices.ContainsFunc(requests[name], dev.isForRequest) {
					out = append(out, Use{name, d, dev})
				}
			}
		}
	}
	return out, nil
}

// isForRequest reports whether a device was allocated for a request of its claim. A device that was allocated for a
// subrequest matches the request.
func (d *Device) isForRequest(request string) bool {
	base, _, _ := strings.Cut(request, "/")
	return request == "" || len(d.Requests) == 0 || slices.Contains(d.Requests, base) || slices.Contains(d.Requests, request)
}

// Container adds the CDI devices of a container's claims to its configuration.
func (m *Manager) Container(_ context.Context, pod *v1.Pod, ctr *v1.Container, out *cri.ContainerConfig) error {
	uses, err := m.Uses(pod, ctr)
	if err != nil {
		return err
	}
	for _, u := range uses {
		for _, name := range u.Device.CDI {
			if !slices.ContainsFunc(out.CDIDevices, func(d *cri.CDIDevice) bool { return d.Name == name }) {
				out.CDIDevices = append(out.CDIDevices, &cri.CDIDevice{Name: name})
			}
		}
	}
	return nil
}
