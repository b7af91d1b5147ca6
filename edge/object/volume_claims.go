package object

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
)

// maxChain is the maximum length of a chain of references. The longest chain goes from a claim to its volume, and from the volume to its
// objects.
const maxChain = 4

// keptAnnotations contains the annotations of get-only objects that the node needs. All other metadata is
// dropped.
var keptAnnotations = []string{
	v1.MountOptionAnnotation, // volume.beta.kubernetes.io/mount-options
	"pv.beta.kubernetes.io/gid",
}

// EphemeralClaim returns the name of the claim of a generic ephemeral volume. See
// https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming.
func EphemeralClaim(pod *v1.Pod, volume string) string { return pod.Name + "-" + volume }

func newClaimKind() *kind {
	k := getOnlyKind(func(l *v1.PersistentVolumeClaimList) *[]v1.PersistentVolumeClaim {
		return &l.Items
	}, func(c *v1.PersistentVolumeClaim) bool {
		owners := c.OwnerReferences
		c.ObjectMeta = volumeMetadata(c.ObjectMeta)
		c.OwnerReferences = owners // the pod must own the claim of an ephemeral volume
		return true
	})
	k.listReferences = func(c content) (keys []store.ObjectKey) {
		for _, claim := range c.(*v1.PersistentVolumeClaimList).Items {
			if claim.Spec.VolumeName != "" {
				keys = append(keys, store.ObjectKey{Kind: volumeKind, Name: claim.Spec.VolumeName})
			}
		}
		return keys
	}
	k.isSettled = func(c content) bool {
		l := c.(*v1.PersistentVolumeClaimList).Items
		return len(l) == 1 && l[0].Status.Phase == v1.ClaimBound && l[0].Spec.VolumeName != "" && l[0].DeletionTimestamp == nil
	}
	return k
}

func newVolumeKind(node string) *kind {
	k := getOnlyKind(func(l *v1.PersistentVolumeList) *[]v1.PersistentVolume { return &l.Items }, func(pv *v1.PersistentVolume) bool {
		pv.ObjectMeta = volumeMetadata(pv.ObjectMeta)
		return true
	})
	k.listReferences = func(c content) (keys []store.ObjectKey) {
		for _, pv := range c.(*v1.PersistentVolumeList).Items {
			if i := pv.Spec.ISCSI; i != nil && i.SecretRef != nil && i.SecretRef.Name != "" {
				namespace := i.SecretRef.Namespace
				if namespace == "" && pv.Spec.ClaimRef != nil {
					namespace = pv.Spec.ClaimRef.Namespace
				}
				keys = append(keys, store.ObjectKey{Kind: secretKind, Namespace: namespace, Name: i.SecretRef.Name})
			}
			keys = append(keys, csiReferences(pv.Spec.CSI)...)
		}
		return keys
	}
	k.optionalReferences = func(c content) (keys []store.ObjectKey) {
		for _, pv := range c.(*v1.PersistentVolumeList).Items {
			if pv.Spec.CSI != nil {
				keys = append(keys, store.ObjectKey{Kind: attachmentKind, Name: AttachmentName(node, pv.Spec.CSI)})
			}
		}
		return keys
	}
	k.isSettled = func(c content) bool {
		l := c.(*v1.PersistentVolumeList).Items
		return len(l) == 1 && l[0].Spec.ClaimRef != nil && l[0].Spec.ClaimRef.UID != ""
	}
	return k
}

// volumeMetadata returns the metadata fields that volumes need.
func volumeMetadata(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, DeletionTimestamp: m.DeletionTimestamp}
	for _, k := range keptAnnotations {
		if v, ok := m.Annotations[k]; ok {
			metav1.SetMetaDataAnnotation(&out, k, v)
		}
	}
	return out
}

// getOnlyKind returns a kind of objects that a node may get, but neither list nor watch.
func getOnlyKind[T, L any, PT interface {
	kube.Object[T]
	metav1.Object
}, PL interface {
	kube.Object[L]
	content
	metav1.ListInterface
}](items func(*L) *[]T, strip func(*T) bool) *kind {
	k := kindOf[T, L, PT, PL](items, strip)
	k.alwaysWatched = true
	k.isImmutable = func(content) bool { return false }
	k.list, k.watch, k.apply = nil, nil, nil
	k.get = func(ctx context.Context, client *kube.Client, namespace, name string) (content, error) {
		out := new(L)
		got, err := kube.Get[T, PT](ctx, client, namespace, name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case strip((*T)(got)):
			*items(out) = []T{*got}
		}
		return PL(out), nil
	}
	return k
}

// listReferences returns the references of an item's object to other objects. The caller must hold mu, or be the only user of the item.
func (it *item) listReferences() []store.ObjectKey {
	if !it.isKnown() || it.kind.listReferences == nil {
		return nil
	}
	return it.kind.listReferences(it.content)
}

// addReferenced registers a pod as a user of the objects to which an item's object refers. The caller must hold mu.
func (c *Cache) addReferenced(uid types.UID, it *item) { c.addReferencedOf(uid, it, false) }

// addReferencedOf is like addReferenced. If ranBefore is true, the pod already ran before the agent started. Such a pod may also use
// objects that were deleted while the pod ran.
func (c *Cache) addReferencedOf(uid types.UID, it *item, ranBefore bool) {
	uses := c.pods[uid]
	for _, k := range append(it.listReferences(), c.requestedOptional(it)...) {
		if uses == nil || uses[k] || c.kinds[k.Kind] == nil {
			continue
		}
		uses[k] = true
		n := c.findOrCreate(k)
		n.users[uid] = n.exists() && (ranBefore || !n.gone)
		c.addReferencedOf(uid, n, ranBefore)
	}
}

// requestUnsettled requests a new read of the known objects of a pod that are not ready for its start, such as an unbound claim. The caller
// must hold mu.
func (c *Cache) requestUnsettled(uid types.UID) (fresh []<-chan struct{}) {
	for k := range c.pods[uid] {
		it := c.items[k]
		if it.isKnown() && it.kind.isSettled != nil && (it.gone || !it.kind.isSettled(it.content)) {
			fresh = append(fresh, it.requestRead())
		}
	}
	return fresh
}

// waitChain waits until the first read of each object of a pod has ended, including objects that other objects reference.
func (c *Cache) waitChain(ctx context.Context, uid types.UID) error {
	for range maxChain {
		var waits []<-chan struct{}
		c.mu.Lock()
		for k := range c.pods[uid] {
			it := c.items[k]
			select {
			case <-it.firstAnswer:
			default:
				waits = append(waits, it.firstAnswer)
			}
		}
		c.mu.Unlock()
		if len(waits) == 0 {
			return nil
		}
		if err := waitAll(ctx, waits); err != nil {
			return err
		}
	}
	return nil
}

// Renew reads all get-only objects of a pod again. It waits for the answers, at most for updateTimeout. Callers that wait for an
// attachment, a binding or a resize call it repeatedly.
func (c *Cache) Renew(ctx context.Context, pod *v1.Pod) error {
	var fresh []<-chan struct{}
	c.mu.Lock()
	for k := range c.pods[pod.UID] {
		if it := c.items[k]; it.kind.get != nil {
			fresh = append(fresh, it.requestRead())
		}
	}
	c.mu.Unlock()
	if err := waitBriefly(ctx, fresh); err != nil {
		return err
	}
	return c.waitChain(ctx, pod.UID)
}

// Claim returns a claim in the pod's namespace, with the fields that a volume needs. If the claim does not exist, apierrors.IsNotFound is
// true for the error.
func (c *Cache) Claim(pod *v1.Pod, name string) (*v1.PersistentVolumeClaim, error) {
	got, err := c.read(pod, claimKind, pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	return &got.(*v1.PersistentVolumeClaimList).Items[0], nil
}

// PersistentVolume returns the volume to which a claim of the pod is bound.
func (c *Cache) PersistentVolume(pod *v1.Pod, name string) (*v1.PersistentVolume, error) {
	got, err := c.read(pod, volumeKind, "", name)
	if err != nil {
		return nil, err
	}
	return &got.(*v1.PersistentVolumeList).Items[0], nil
}

// VolumeSecret returns a Secret that a volume of the pod references, in any namespace.
func (c *Cache) VolumeSecret(pod *v1.Pod, namespace, name string) (*v1.Secret, error) {
	got, err := c.read(pod, secretKind, namespace, name)
	if err != nil {
		return nil, err
	}
	return &got.(*v1.SecretList).Items[0], nil
}
