package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/podspec"
)

// tokensKey is the key of the tokens in the volume context or in the secrets.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

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

func fsGroup(pod *v1.Pod) *int64 {
	if pod == nil || pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
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

// addPodInfo adds information about the pod, and tokens, to a request if the CSIDriver object asks for them.
// https://kubernetes-csi.github.io/docs/pod-info.html
// https://kubernetes-csi.github.io/docs/token-requests.html
func (d *Drivers) addPodInfo(ctx context.Context, o *storagev1.CSIDriver, v storage.Volume, pod *v1.Pod,
	req *spec.NodePublishVolumeRequest) error {
	if o == nil {
		return nil
	}
	add := map[string]string{}
	if podspec.IsTrue(o.Spec.PodInfoOnMount) {
		add["csi.storage.k8s.io/pod.name"] = pod.Name
		add["csi.storage.k8s.io/pod.namespace"] = pod.Namespace
		add["csi.storage.k8s.io/pod.uid"] = string(pod.UID)
		add["csi.storage.k8s.io/serviceAccount.name"] = pod.Spec.ServiceAccountName
		add["csi.storage.k8s.io/ephemeral"] = strconv.FormatBool(v.Inline)
	}
	tokens, err := d.requestTokens(ctx, o.Spec.TokenRequests, pod)
	if err != nil {
		return err
	}
	if tokens != "" && podspec.IsTrue(o.Spec.ServiceAccountTokenInSecrets) {
		req.Secrets = mergeMaps(req.Secrets, map[string]string{tokensKey: tokens})
	} else if tokens != "" {
		add[tokensKey] = tokens
	}
	if v.Block { // a kubelet sends no tokens for block volumes
		delete(add, tokensKey)
	}
	req.VolumeContext = mergeMaps(req.VolumeContext, add)
	return nil
}

// mergeMaps returns the entries of two maps. For a key in both of them, it returns the value from the first.
func mergeMaps(to, add map[string]string) map[string]string {
	if len(add) == 0 {
		return to
	}
	out := maps.Clone(add)
	for k, v := range to {
		if _, there := out[k]; !there {
			out[k] = v
		}
	}
	return out
}

// requestTokens returns the requested tokens by audience, as JSON. It returns "" if the driver requests no tokens.
func (d *Drivers) requestTokens(ctx context.Context, wanted []storagev1.TokenRequest, pod *v1.Pod) (string, error) {
	if len(wanted) == 0 {
		return "", nil
	}
	type token struct {
		Token   string      `json:"token"`
		Expires metav1.Time `json:"expirationTimestamp"`
	}
	all := map[string]token{}
	for _, w := range wanted {
		var seconds int64
		if w.ExpirationSeconds != nil {
			seconds = *w.ExpirationSeconds
		}
		text, expires, err := d.cfg.Objects.VolumeToken(ctx, pod, w.Audience, seconds)
		if err != nil {
			return "", fmt.Errorf("get service account token attributes: %w", err)
		}
		all[w.Audience] = token{text, metav1.NewTime(expires.Truncate(time.Second))}
	}
	data, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encode the tokens: %w", err)
	}
	return string(data), nil
}

// MountsLabel reports whether the driver supports mounting with an SELinux label.
// https://kubernetes-csi.github.io/docs/csi-driver-object.html
func (d *Drivers) MountsLabel(pod *v1.Pod, v storage.Volume) bool {
	o, err := d.driverObject(pod, v.Source.CSI.Driver)
	return err == nil && o != nil && podspec.IsTrue(o.Spec.SELinuxMount)
}

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
