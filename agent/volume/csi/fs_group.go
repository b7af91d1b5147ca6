package csi

import (
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/islet-edge/islet/agent/volume/storage"
)

// SetsGroup reports whether the node must change the group of the volume's files to the pod's fsGroup. If it
// returns false, the driver changes the group, or the CSIDriver object specifies that the group is not
// changed.
// https://kubernetes-csi.github.io/docs/support-fsgroup.html
func (d *Drivers) SetsGroup(v storage.Volume, u storage.Use) bool {
	n, err := d.findDriver(v.Source.CSI.Driver, "")
	if err != nil || n.capabilities[spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
		return false
	}
	policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	if o, err := d.driverObject(u.Pod, v.Source.CSI.Driver); err == nil && o != nil && o.Spec.FSGroupPolicy != nil {
		policy = *o.Spec.FSGroupPolicy
	}
	switch policy {
	case storagev1.NoneFSGroupPolicy:
		return false
	case storagev1.FileFSGroupPolicy:
		return true
	}
	once := v.Inline || slices.Contains(v.AccessModes, v1.ReadWriteOnce) || slices.Contains(v.AccessModes, v1.ReadWriteOncePod)
	return once && v.Source.CSI.FSType != ""
}

func fsGroup(pod *v1.Pod) *int64 {
	if pod == nil || pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}
