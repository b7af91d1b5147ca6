package csi

import (
	"fmt"
	"slices"
	"strconv"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/podspec"
)

// driverObject returns the driver's CSIDriver object. It returns nil if there is none, which is not an error.
func (d *Drivers) driverObject(pod *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	o, err := d.cfg.Objects.CSIDriver(pod, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the CSIDriver %s: %w", name, err)
	}
	return o, nil
}

// checkLifecycle verifies that the driver supports persistent volumes, or inline volumes if inline is true.
// https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#csi-ephemeral-volumes
func checkLifecycle(o *storagev1.CSIDriver, inline bool, name string) error {
	mode := storagev1.VolumeLifecyclePersistent
	if inline {
		mode = storagev1.VolumeLifecycleEphemeral
	}
	switch {
	case o == nil && !inline:
		return nil
	case o == nil:
		return fmt.Errorf("volume mode %q not supported by driver %s (no CSIDriver object)", mode, name)
	case slices.Contains(o.Spec.VolumeLifecycleModes, mode), len(o.Spec.VolumeLifecycleModes) == 0 && !inline:
		return nil
	}
	return fmt.Errorf("volume mode %q not supported by driver %s (only supports %q)", mode, name, o.Spec.VolumeLifecycleModes)
}

// volumeCapability returns the access mode, type and mount options that the pod requires of the volume.
func (n *driver) volumeCapability(v storage.Volume, pod *v1.Pod) *spec.VolumeCapability {
	c := &spec.VolumeCapability{AccessMode: &spec.VolumeCapability_AccessMode{Mode: n.accessMode(v)}}
	if v.Block {
		c.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		return c
	}
	m := &spec.VolumeCapability_MountVolume{FsType: v.Source.CSI.FSType, MountFlags: v.MountOptions}
	if g := fsGroup(pod); g != nil && n.capabilities[spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
		m.VolumeMountGroup = strconv.FormatInt(*g, 10)
	}
	c.AccessType = &spec.VolumeCapability_Mount{Mount: m}
	return c
}

// accessMode converts the volume's first access mode to a CSI access mode, in the same way as a kubelet.
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/2485-read-write-once-pod-pv-access-mode
func (n *driver) accessMode(v storage.Volume) spec.VolumeCapability_AccessMode_Mode {
	mode := v1.ReadWriteOnce
	if len(v.AccessModes) > 0 {
		mode = v.AccessModes[0]
	}
	both := n.capabilities[spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]
	switch {
	case mode == v1.ReadOnlyMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == v1.ReadWriteMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOnce && both:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOncePod && both:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case mode == v1.ReadWriteOnce, mode == v1.ReadWriteOncePod:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
	return spec.VolumeCapability_AccessMode_UNKNOWN
}

// readSecret returns the data of a referenced Secret. It returns nil if the reference is nil or
// contains no name.
func (d *Drivers) readSecret(pod *v1.Pod, field string, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil || ref.Name == "" {
		return nil, nil
	}
	s, err := d.cfg.Objects.VolumeSecret(pod, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("fetching %s %s/%s failed: %w", field, ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(s.Data))
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out, nil
}

// MountsLabel reports whether the driver supports mounting with an SELinux label.
// https://kubernetes-csi.github.io/docs/csi-driver-object.html
func (d *Drivers) MountsLabel(pod *v1.Pod, v storage.Volume) bool {
	o, err := d.driverObject(pod, v.Source.CSI.Driver)
	return err == nil && o != nil && podspec.IsTrue(o.Spec.SELinuxMount)
}
