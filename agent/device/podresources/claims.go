package podresources

import (
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/islet-edge/islet/agent/device/dra"
)

// ByClaims groups the devices of a container by the claim through which it has them. The devices must be sorted by
// claim.
func ByClaims(pod *v1.Pod, container string, uses []dra.Use) (out []*ClaimDevices) {
	for _, u := range uses {
		if len(out) == 0 || out[len(out)-1].Resource.ClaimName != u.Claim {
			out = append(out, &ClaimDevices{pod.UID, container, &api.DynamicResource{ClaimName: u.Claim, ClaimNamespace: pod.Namespace}})
		}
		r := &api.ClaimResource{DriverName: u.Driver, PoolName: u.Device.Pool, DeviceName: u.Device.Name}
		if u.Device.Share != "" {
			r.ShareId = new(u.Device.Share)
		}
		for _, name := range u.Device.CDI {
			r.CdiDevices = append(r.CdiDevices, &api.CDIDevice{Name: name})
		}
		last := out[len(out)-1].Resource
		last.ClaimResources = append(last.ClaimResources, r)
	}
	return out
}
