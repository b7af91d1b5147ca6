package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podspec"
)

// errNoServer is the error for a claim on a node without a control plane.
var errNoServer = errors.New("this node has no API server")

// resolveVolume determines the storage and driver of a pod's volume. The error messages are the same as in a kubelet.
// https://kubernetes.io/docs/concepts/storage/persistent-volumes/
func (k *Mounter) resolveVolume(pod *v1.Pod, vol *v1.Volume) (Volume, Driver, error) {
	v, err := k.findVolume(pod, vol)
	if err != nil {
		return Volume{}, nil, resolveError(vol, err)
	}
	i := slices.IndexFunc(k.cfg.Drivers, func(d Driver) bool { return d.Serves(&v.Source) })
	if i < 0 {
		return Volume{}, nil, resolveError(vol, fmt.Errorf("no volume plugin matched name: %s", sourceName(&v.Source)))
	}
	if n := v.Name; n == "" || n == "." || n == ".." || strings.ContainsAny(n, "/\x00") {
		return Volume{}, nil, resolveError(vol, fmt.Errorf("%q cannot be the name of a directory", n))
	}
	if err := checkNames(&v.Source); err != nil {
		return Volume{}, nil, resolveError(vol, err)
	}
	d := k.cfg.Drivers[i]
	v.ID = volumeID(pod.UID, &v, d)
	if err := k.addLabel(pod, vol, &v, d); err != nil {
		return Volume{}, nil, resolveError(vol, err)
	}
	return v, d, nil
}

// resolveError returns the error for a volume that cannot be resolved.
func resolveError(vol *v1.Volume, err error) error { return mountError(vol.Name, vol.Name, err) }

// mountError returns the error for a pod that waits for a volume. If the volume cannot be resolved, the parameter
// failed is the name of the volume. Otherwise it is empty.
func mountError(volume, failed string, err error) error {
	return fmt.Errorf("Unable to attach or mount volumes: "+ //nolint:staticcheck // the message of a kubelet
		"unmounted volumes=[%s], unattached volumes=[], failed to process volumes=[%s]: %w", volume, failed, err)
}

func (k *Mounter) findVolume(pod *v1.Pod, vol *v1.Volume) (Volume, error) {
	switch {
	case vol.PersistentVolumeClaim != nil:
		return k.fromClaim(pod, vol, vol.PersistentVolumeClaim.ClaimName, vol.PersistentVolumeClaim.ReadOnly)
	case vol.Ephemeral != nil:
		return k.fromClaim(pod, vol, k.cfg.Claim(pod, vol.Name), false)
	case vol.NFS != nil:
		return Volume{Name: vol.Name, Inline: true, ReadOnly: vol.NFS.ReadOnly, Source: v1.PersistentVolumeSource{NFS: vol.NFS}}, nil
	case vol.ISCSI != nil:
		return Volume{
			Name: vol.Name, Inline: true, ReadOnly: vol.ISCSI.ReadOnly,
			Source: v1.PersistentVolumeSource{ISCSI: persistentISCSI(pod, vol.ISCSI)},
		}, nil
	case vol.CSI != nil:
		s := &v1.CSIPersistentVolumeSource{
			Driver: vol.CSI.Driver, VolumeAttributes: vol.CSI.VolumeAttributes,
			ReadOnly: vol.CSI.ReadOnly != nil && *vol.CSI.ReadOnly,
		}
		if vol.CSI.FSType != nil {
			s.FSType = *vol.CSI.FSType
		}
		if r := vol.CSI.NodePublishSecretRef; r != nil {
			s.NodePublishSecretRef = &v1.SecretReference{Namespace: pod.Namespace, Name: r.Name}
		}
		return Volume{Name: vol.Name, Inline: true, ReadOnly: s.ReadOnly, Source: v1.PersistentVolumeSource{CSI: s}}, nil
	}
	return Volume{}, errors.New("the volume is of a type that this node does not support")
}

// fromClaim returns the volume of a claim. If a pod has mounted the volume, later changes of the claim and its PersistentVolume affect only
// the size of the volume.
func (k *Mounter) fromClaim(pod *v1.Pod, vol *v1.Volume, name string, readOnly bool) (Volume, error) {
	v, err := k.resolveClaim(pod, vol, name, readOnly)
	if key, mounted := k.mountedVolume(pod, name); mounted != nil && (err != nil || v.Name != mounted.Name && k.isUp(key)) {
		mounted.ReadOnly = readOnly || readOnlySource(&mounted.Source)
		return *mounted, nil
	}
	v.Claim = name
	return v, err
}

// mountedVolume returns the volume of a claim that is or may be mounted for a pod, without its SELinux label. It returns nil if there is
// none. If there are several, it prefers the one to which the claim is bound now. The rows of earlier versions do not contain the name of
// the claim. A volume that a Finder has found cannot be mounted again.
func (k *Mounter) mountedVolume(pod *v1.Pod, claim string) (at store.VolumeKey, v *Volume) {
	bound := ""
	if k.cfg.Objects != nil {
		if c, err := k.cfg.Objects.Claim(pod, claim); err == nil {
			bound = c.Spec.VolumeName
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, r := range k.rows {
		isBound := bound != "" && r.Volume.Name == bound
		if key.Pod != string(pod.UID) || r.Found || r.Volume.Inline || r.Volume.Claim != claim && (r.Volume.Claim != "" || !isBound) {
			continue
		}
		if v == nil || isBound || v.Name != bound && key.Volume < at.Volume {
			found := r.Volume
			at, v = key, &found
		}
	}
	if v != nil && v.Label != "" && len(v.MountOptions) > 0 { // the last option comes from addLabel
		v.Label, v.MountOptions = "", v.MountOptions[:len(v.MountOptions)-1]
	}
	return at, v
}

// resolveClaim returns the volume to which a claim is bound. The claim and its PersistentVolume must be bound to each
// other.
func (k *Mounter) resolveClaim(pod *v1.Pod, vol *v1.Volume, name string, readOnly bool) (Volume, error) {
	fail := func(err error) (Volume, error) {
		return Volume{}, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	if k.cfg.Objects == nil {
		return fail(fmt.Errorf("failed to fetch PVC from API server: %w", errNoServer))
	}
	claim, err := k.cfg.Objects.Claim(pod, name)
	switch {
	case err != nil:
		return fail(fmt.Errorf("failed to fetch PVC from API server: %w", err))
	case vol.Ephemeral != nil && !metav1.IsControlledBy(claim, pod):
		return Volume{}, fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)",
			claim.Namespace, claim.Name, pod.Namespace, pod.Name)
	case claim.DeletionTimestamp != nil && !k.hasMounted(pod, claim.Spec.VolumeName):
		return fail(errors.New("PVC is being deleted"))
	case claim.Status.Phase == v1.ClaimLost:
		return fail(errors.New("PVC is not bound: its PersistentVolume is lost"))
	case claim.Status.Phase != v1.ClaimBound:
		return fail(errors.New("PVC is not bound"))
	case claim.Spec.VolumeName == "":
		return fail(errors.New("PVC has empty pvc.Spec.VolumeName"))
	}
	pv, err := k.cfg.Objects.PersistentVolume(pod, claim.Spec.VolumeName)
	switch {
	case err != nil:
		return fail(fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err))
	case pv.Spec.ClaimRef == nil:
		return fail(fmt.Errorf("found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim", pv.Name))
	case pv.Spec.ClaimRef.UID != claim.UID:
		return fail(fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s",
			pv.Name, pv.Spec.ClaimRef.UID, claim.UID))
	}
	v := Volume{
		Name: pv.Name, Source: pv.Spec.PersistentVolumeSource,
		Block:    pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock,
		ReadOnly: readOnly || readOnlySource(&pv.Spec.PersistentVolumeSource), MountOptions: mountOptions(pv),
		AccessModes: pv.Spec.AccessModes, Capacity: pv.Spec.Capacity, claim: claim,
	}
	if err := checkVolumeMode(pod, vol.Name, v.Block); err != nil {
		return Volume{}, err
	}
	if a := pv.Spec.NodeAffinity; a != nil && a.Required != nil && !k.hasMounted(pod, pv.Name) { // not all labels are known after a reboot
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: k.cfg.Labels()}}
		if fits, err := nodeaffinity.NewLazyErrorNodeSelector(a.Required).Match(node); err != nil || !fits {
			return Volume{}, fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q : %w", v.Name,
				errors.Join(errors.New("no matching NodeSelectorTerms"), err))
		}
	}
	return v, nil
}

// mountOptions returns the mount options from the spec, or from the older annotation.
func mountOptions(pv *v1.PersistentVolume) []string {
	if old := pv.Annotations[v1.MountOptionAnnotation]; old != "" && len(pv.Spec.MountOptions) == 0 {
		return strings.Split(old, ",")
	}
	return pv.Spec.MountOptions
}

// checkVolumeMode checks that containers use the volume according to its mode: as a device or as files.
func checkVolumeMode(pod *v1.Pod, name string, block bool) error {
	for _, c := range podspec.Containers(&pod.Spec) {
		if block && slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == name }) {
			return fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", name)
		}
		if !block && slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == name }) {
			return fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", name)
		}
	}
	return nil
}

// volumeID returns the ID of a volume in the format that a kubelet uses for volumesInUse. All spellings of an iSCSI disk have the same ID,
// and all PersistentVolumes with the same local path.
func volumeID(pod types.UID, v *Volume, d Driver) string {
	s := &v.Source
	switch {
	case s.ISCSI != nil:
		return iscsiID(s.ISCSI)
	case s.Local != nil:
		return localID(s.Local)
	case v.Inline:
		return d.Plugin() + "/" + string(pod) + "-" + v.Name
	case s.CSI != nil:
		return d.Plugin() + "/" + s.CSI.Driver + "^" + s.CSI.VolumeHandle
	}
	return d.Plugin() + "/" + v.Name
}

// volumePath returns the path of a volume for a pod.
func (k *Mounter) volumePath(pod *v1.Pod, v Volume, d Driver) string {
	kind := "volumes"
	if v.Block {
		kind = "volumeDevices"
	}
	usual := filepath.Join(k.root, "pods", string(pod.UID), kind, strings.ReplaceAll(d.Plugin(), "/", "~"), v.Name)
	if p, ok := d.(PathProvider); ok {
		return p.PodPath(v, usual)
	}
	return usual
}

func readOnlySource(s *v1.PersistentVolumeSource) bool {
	switch {
	case s.NFS != nil:
		return s.NFS.ReadOnly
	case s.ISCSI != nil:
		return s.ISCSI.ReadOnly
	case s.CSI != nil:
		return s.CSI.ReadOnly
	}
	return false
}

func persistentISCSI(pod *v1.Pod, s *v1.ISCSIVolumeSource) *v1.ISCSIPersistentVolumeSource {
	out := &v1.ISCSIPersistentVolumeSource{
		TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, ISCSIInterface: s.ISCSIInterface, FSType: s.FSType, ReadOnly: s.ReadOnly,
		Portals: s.Portals, DiscoveryCHAPAuth: s.DiscoveryCHAPAuth, SessionCHAPAuth: s.SessionCHAPAuth, InitiatorName: s.InitiatorName,
	}
	if s.SecretRef != nil {
		out.SecretRef = &v1.SecretReference{Namespace: pod.Namespace, Name: s.SecretRef.Name}
	}
	return out
}

// sourceName returns the plugin name of a source, for messages.
func sourceName(s *v1.PersistentVolumeSource) string {
	for name, set := range map[string]bool{
		"kubernetes.io/csi": s.CSI != nil, "kubernetes.io/fc": s.FC != nil,
		"kubernetes.io/cephfs": s.CephFS != nil, "kubernetes.io/rbd": s.RBD != nil,
		"kubernetes.io/azure-disk": s.AzureDisk != nil, "kubernetes.io/azure-file": s.AzureFile != nil,
		"kubernetes.io/aws-ebs": s.AWSElasticBlockStore != nil,
		"kubernetes.io/gce-pd":  s.GCEPersistentDisk != nil, "kubernetes.io/cinder": s.Cinder != nil,
		"kubernetes.io/vsphere-volume": s.VsphereVolume != nil,
		"kubernetes.io/glusterfs":      s.Glusterfs != nil, "kubernetes.io/flexvolume": s.FlexVolume != nil,
		"kubernetes.io/portworx-volume": s.PortworxVolume != nil,
		"kubernetes.io/iscsi":           s.ISCSI != nil, "kubernetes.io/nfs": s.NFS != nil,
		"kubernetes.io/local-volume": s.Local != nil, "kubernetes.io/host-path": s.HostPath != nil,
	} {
		if set {
			return name
		}
	}
	return "it has no source"
}
