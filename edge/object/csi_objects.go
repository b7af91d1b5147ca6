package object

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/store"
)

// AttachmentName returns the name of the VolumeAttachment of a volume on a node. The attach-detach controller computes the same name.
func AttachmentName(node string, s *v1.CSIPersistentVolumeSource) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(s.VolumeHandle+s.Driver+node)))
}

// newDriverKind returns the kind for CSIDrivers. A node may list and watch them.
func newDriverKind() *kind {
	k := kindOf(func(l *storagev1.CSIDriverList) *[]storagev1.CSIDriver { return &l.Items }, func(d *storagev1.CSIDriver) bool {
		d.ObjectMeta = metav1.ObjectMeta{Name: d.Name}
		return true
	})
	k.alwaysWatched = true
	k.isImmutable = func(content) bool { return false }
	return k
}

// newAttachmentKind returns the kind for VolumeAttachments. A node may only get them.
func newAttachmentKind() *kind {
	k := getOnlyKind(func(l *storagev1.VolumeAttachmentList) *[]storagev1.VolumeAttachment {
		return &l.Items
	}, func(a *storagev1.VolumeAttachment) bool {
		meta := metav1.ObjectMeta{Name: a.Name, DeletionTimestamp: a.DeletionTimestamp}
		*a = storagev1.VolumeAttachment{ObjectMeta: meta, Status: a.Status}
		return true
	})
	k.isSettled = func(c content) bool {
		l := c.(*storagev1.VolumeAttachmentList).Items
		return len(l) == 1 && l[0].Status.Attached && l[0].DeletionTimestamp == nil
	}
	return k
}

// csiReferences returns the keys of the driver and the Secrets of a CSI volume.
func csiReferences(s *v1.CSIPersistentVolumeSource) (keys []store.ObjectKey) {
	if s == nil {
		return nil
	}
	if s.Driver != "" {
		keys = append(keys, store.ObjectKey{Kind: driverKind, Name: s.Driver})
	}
	for _, ref := range []*v1.SecretReference{s.NodeStageSecretRef, s.NodePublishSecretRef, s.NodeExpandSecretRef} {
		if ref != nil && ref.Name != "" {
			keys = append(keys, store.ObjectKey{Kind: secretKind, Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	return keys
}

// optionalReferences returns the optional references of an item's object: the keys of referenced objects that are read only on request. The
// caller must hold mu, or be the only user of the item.
func (it *item) optionalReferences() []store.ObjectKey {
	if !it.isKnown() || it.kind.optionalReferences == nil {
		return nil
	}
	return it.kind.optionalReferences(it.content)
}

// requestedOptional returns the optional references of an item, but only those that RenewAttachment has requested. The caller must hold mu.
func (c *Cache) requestedOptional(it *item) (keys []store.ObjectKey) {
	for _, k := range it.optionalReferences() {
		if c.items[k] != nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// CSIDriver returns the CSIDriver of a volume of the pod. If the CSIDriver does not exist, apierrors.IsNotFound is true for the error.
func (c *Cache) CSIDriver(pod *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	got, err := c.read(pod, driverKind, "", name)
	if err != nil {
		return nil, err
	}
	return &got.(*storagev1.CSIDriverList).Items[0], nil
}

// Attachment returns the VolumeAttachment that the last RenewAttachment of the pod has read.
func (c *Cache) Attachment(pod *v1.Pod, name string) (*storagev1.VolumeAttachment, error) {
	c.mu.Lock()
	it := c.items[store.ObjectKey{Kind: attachmentKind, Name: name}]
	gone := it != nil && it.gone
	c.mu.Unlock()
	if gone { // a volume with a deleted attachment is not attached
		return nil, apierrors.NewNotFound(storagev1.Resource("volumeattachments"), name)
	}
	got, err := c.read(pod, attachmentKind, "", name)
	if err != nil {
		return nil, err
	}
	return &got.(*storagev1.VolumeAttachmentList).Items[0], nil
}

// RenewAttachment reads a VolumeAttachment for a pod. If the API server does not answer within updateTimeout, it returns the last known
// version.
func (c *Cache) RenewAttachment(ctx context.Context, pod *v1.Pod, name string) (*storagev1.VolumeAttachment, error) {
	k := store.ObjectKey{Kind: attachmentKind, Name: name}
	c.mu.Lock()
	uses := c.pods[pod.UID]
	if uses == nil {
		c.mu.Unlock()
		return nil, apierrors.NewNotFound(storagev1.Resource("volumeattachments"), name) // the pod was released
	}
	it := c.findOrCreate(k)
	if !uses[k] {
		uses[k] = true
		it.users[pod.UID] = it.exists()
	}
	known, answered := it.isKnown(), it.firstAnswer
	var fresh <-chan struct{}
	if known || it.err != nil {
		fresh = it.requestRead()
	}
	c.mu.Unlock()
	if known {
		if err := waitBriefly(ctx, []<-chan struct{}{fresh}); err != nil {
			return nil, err
		}
	} else if err := waitAll(ctx, []<-chan struct{}{answered}); err != nil {
		return nil, err
	}
	return c.Attachment(pod, name)
}

// VolumeToken returns a token of the pod's service account for a CSI driver. It requests a new token if the current one expires soon. The
// lifetime is given in seconds; 0 means an hour. The token is stored and refreshed like the tokens of projected volumes.
func (c *Cache) VolumeToken(ctx context.Context, pod *v1.Pod, audience string, seconds int64) (token string, expires time.Time, err error) {
	k := store.TokenKey{UID: pod.UID, Audience: audience, Seconds: cmp.Or(seconds, tokenSeconds)}
	c.tokens.register(pod, map[store.TokenKey]bool{k: true}, false)
	if err := c.tokens.obtainToken(ctx, k, false); err != nil {
		return "", time.Time{}, err
	}
	c.tokens.mu.Lock()
	defer c.tokens.mu.Unlock()
	switch has := c.tokens.list[k]; {
	case has == nil:
		return "", time.Time{}, fmt.Errorf("service account token for audience %q: the pod is gone", audience)
	case has.Token.Token == "" && has.err != nil:
		return "", time.Time{}, has.err
	case has.Token.Token == "":
		return "", time.Time{}, fmt.Errorf("service account token for audience %q: %w", audience, errUnread)
	default:
		return has.Token.Token, has.Expires, nil
	}
}
