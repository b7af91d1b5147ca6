package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podspec"
)

// A Labeler is a Driver that can mount a volume with one SELinux label for all its files.
type Labeler interface {
	// MountsLabel reports whether this volume can be mounted with a label.
	MountsLabel(pod *v1.Pod, v Volume) bool
}

// canLabel reports whether a volume is mounted with the label that its pods require. SELinux must be on, and the
// driver must be a Labeler. The volume must be a PersistentVolume that is not a block volume. If Config.LabelAll is
// not set, only one pod may use the volume (ReadWriteOncePod).
func (k *Mounter) canLabel(pod *v1.Pod, v *Volume, d Driver) bool {
	l, ok := d.(Labeler)
	if k.cfg.Label == nil || !ok || v.Block || v.Inline || !l.MountsLabel(pod, *v) {
		return false
	}
	return k.cfg.LabelAll || len(v.AccessModes) == 1 && v.AccessModes[0] == v1.ReadWriteOncePod
}

// addLabel adds the mount option that sets the SELinux label of all files of a volume to the label of the pod's
// containers. With this option the files need not be relabelled one by one. It adds no option for a pod whose
// seLinuxChangePolicy is Recursive. It ignores containers that set no level, because only the runtime knows their
// label. A volume that is already mounted for the pod keeps its label even if the driver or the configuration has
// changed. If the label changed, the driver would reject the next call because its options differ.
//
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-storage/1710-selinux-relabeling
func (k *Mounter) addLabel(pod *v1.Pod, vol *v1.Volume, v *Volume, d Driver) error {
	key := store.VolumeKey{Volume: v.ID, Pod: string(pod.UID), Path: k.volumePath(pod, *v, d)}
	recorded, can := k.rowsFor(v.ID, key.Pod)[key].Volume.Label, k.canLabel(pod, v, d)
	switch {
	case (can || recorded != "") && k.isUp(key):
		v.Label = recorded
	case can:
		var err error
		if v.Label, err = k.podLabel(pod, vol, v); err != nil {
			return err
		}
	}
	if v.Label != "" {
		v.MountOptions = append(slices.Clone(v.MountOptions), fmt.Sprintf("context=%q", v.Label))
	}
	return nil
}

// podLabel returns the label with which a pod requires a volume to be mounted, or "".
func (k *Mounter) podLabel(pod *v1.Pod, vol *v1.Volume, v *Volume) (string, error) {
	var own *v1.SELinuxOptions
	if sc := pod.Spec.SecurityContext; sc != nil {
		if sc.SELinuxChangePolicy != nil && *sc.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
			return "", nil
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
		if err == nil && label == "" {
			err = errors.New("the SELinux policy defines no label for files of containers")
		}
		if err != nil {
			return "", k.labels.containerError(v, fmt.Errorf("failed to construct SELinux label of container %s: %w", c.Name, err))
		}
		if !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	if len(labels) > 1 {
		return "", k.labels.podError(v, fmt.Errorf("multiple SELinux labels found: %s", labels))
	}
	if len(labels) == 0 {
		return "", nil
	}
	return labels[0], nil
}

// admitLabel returns an error if another pod uses the volume with another label, because all mounts of a file system
// have the same label. If the volume is mounted with another label but no pod uses it, admitLabel unmounts it. The
// caller holds the volume's lock.
func (k *Mounter) admitLabel(ctx context.Context, v Volume, d Driver, u Use) error {
	used, staged := false, ""
	k.mu.Lock()
	for key, r := range k.rows {
		if key.Volume != v.ID || r.Volume.Label == v.Label && key.Pod == "" {
			continue
		}
		if key.Pod == "" {
			staged = key.Path
			continue
		}
		used = true
		if key.Pod != string(u.Pod.UID) && r.Volume.Label != v.Label {
			k.mu.Unlock()
			return resolveError(&v1.Volume{Name: u.Volume}, k.labels.volumeError(&v, d.Plugin(),
				fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", v.Name, r.Volume.Label, v.Label)))
		}
	}
	k.mu.Unlock()
	if staged != "" {
		if err := k.unmountPodVolume(ctx, v.ID, string(u.Pod.UID)); err != nil {
			return setUpFailed(v, fmt.Errorf("unmount %s, which has another SELinux label: %w", staged, err))
		}
	}
	if !used && v.Label != "" {
		k.labels.countVolume(&v, d.Plugin())
	}
	return nil
}
