package storage

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// A Labeler is a Driver that can mount a volume with one SELinux label for all its files.
type Labeler interface {
	// MountsLabel reports whether this volume can be mounted with a label.
	MountsLabel(pod *v1.Pod, v Volume) bool
}

// label adds the mount option that sets the SELinux label of all files of a volume to the label of the pod's
// containers. The files then need not be relabelled one by one. label adds the option only if SELinux is on, only one
// pod can use the volume (ReadWriteOncePod), and the pod's seLinuxChangePolicy is not Recursive. It ignores
// containers that set no level, because only the runtime knows the label of these.
//
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1710-selinux-relabeling
func (k *Mounter) label(pod *v1.Pod, vol *v1.Volume, v *Volume, d Driver) error {
	l, ok := d.(Labeler)
	if k.cfg.Label == nil || !ok || v.Block || len(v.AccessModes) != 1 ||
		v.AccessModes[0] != v1.ReadWriteOncePod || !l.MountsLabel(pod, *v) {
		return nil
	}
	var own *v1.SELinuxOptions
	if sc := pod.Spec.SecurityContext; sc != nil {
		if sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
			return nil
		}
		own = sc.SELinuxOptions
	}
	var labels []string
	for _, c := range podspec.Containers(&pod.Spec) {
		o := own
		if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
			o = c.SecurityContext.SELinuxOptions
		}
		if o == nil || o.Level == "" || !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == vol.Name }) {
			continue
		}
		label, err := k.cfg.Label(o.User, o.Role, o.Type, o.Level)
		if err != nil {
			return fmt.Errorf("failed to construct SELinux label of container %s: %w", c.Name, err)
		}
		if !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	switch {
	case len(labels) > 1:
		return fmt.Errorf("multiple SELinux labels found: %s", labels)
	case len(labels) == 0:
		return nil
	case labels[0] == "":
		return errors.New("the SELinux policy defines no label for files of containers")
	}
	v.MountOptions, v.labelled = append(slices.Clone(v.MountOptions), fmt.Sprintf("context=%q", labels[0])), true
	return nil
}
