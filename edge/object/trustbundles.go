package object

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/sorting"
)

// maxSelector is the maximum length of a label selector as text, as in a kubelet.
const maxSelector = 100 << 10

// errNoBundle is the error of a projection that selects no bundle and is not optional.
var errNoBundle = errors.New("no ClusterTrustBundle has this signerName and these labels")

// newBundleKind returns the kind for ClusterTrustBundles. A node may list and watch them. An item is either a single bundle with a given
// name, or all bundles of a signer. The key of an item for a signer has the name of the signer as its namespace. See
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-auth/3257-cluster-trust-bundles.
func newBundleKind() *kind {
	k := kindOf(func(l *certificatesv1.ClusterTrustBundleList) *[]certificatesv1.ClusterTrustBundle {
		return &l.Items
	}, func(b *certificatesv1.ClusterTrustBundle) bool {
		b.ObjectMeta = metav1.ObjectMeta{Name: b.Name, Labels: b.Labels}
		return true
	})
	k.alwaysWatched = true
	k.isImmutable = func(content) bool { return false }
	list, watches := k.list, k.watch
	k.list = func(ctx context.Context, client *kube.Client, signer string, o metav1.ListOptions) (content, string, error) {
		return list(ctx, client, "", ofSigner(o, signer))
	}
	k.watch = func(ctx context.Context, client *kube.Client, signer string, o metav1.ListOptions) (watch.Interface, error) {
		return watches(ctx, client, "", ofSigner(o, signer))
	}
	return k
}

func ofSigner(o metav1.ListOptions, signer string) metav1.ListOptions {
	if signer != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.signerName", signer).String()
	}
	return o
}

// maxAnchors is the maximum size of the decoded bundles of one projection, in bytes. An object of the API server has at most 1.5 MiB. For
// comparison, the certificate authorities of a web browser have 220 KiB.
const maxAnchors = 4 << 20

// bundleKey returns the key of the item that a projection selects. It returns false if the projection has neither a name nor a signer.
func bundleKey(p *v1.ClusterTrustBundleProjection) (store.ObjectKey, bool) {
	k := store.ObjectKey{Kind: bundleKind}
	switch {
	case p.Name != nil:
		k.Name = *p.Name
	case p.SignerName != nil:
		k.Namespace = *p.SignerName
	}
	return k, k.Name != "" || k.Namespace != ""
}

// TrustAnchors returns the certificates of the bundles that a projection of the pod selects, in PEM. It removes comments and duplicates.
// The order of the certificates is arbitrary, but it is always the same for the same pod. If no bundle matches an optional projection,
// TrustAnchors returns no certificates.
func (c *Cache) TrustAnchors(pod *v1.Pod, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	k, asks := bundleKey(p)
	if !asks {
		return nil, errors.New("a clusterTrustBundle needs a name or a signerName")
	}
	optional := podspec.IsTrue(p.Optional)
	selector := labels.Everything()
	if k.Name == "" {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(p.LabelSelector); err != nil { // for a nil labelSelector, this selects no bundle
			return nil, fmt.Errorf("its labelSelector: %w", err)
		}
		if n := len(selector.String()); n > maxSelector {
			return nil, fmt.Errorf("its labelSelector has %d characters, the maximum is %d", n, maxSelector)
		}
	}
	got, err := c.read(pod, k.Kind, k.Namespace, k.Name)
	switch {
	case optional && (apierrors.IsNotFound(err) || k.Name != "" && c.bundleDeleted(k)):
		return []byte{}, nil
	case err != nil:
		return nil, err
	}
	var bundles []string
	for _, b := range got.(*certificatesv1.ClusterTrustBundleList).Items {
		if k.Name != "" || b.Spec.SignerName == k.Namespace && selector.Matches(labels.Set(b.Labels)) {
			bundles = append(bundles, b.Spec.TrustBundle)
		}
	}
	if err := inputweight.PEM(maxAnchors, bundles...); err != nil {
		return nil, fmt.Errorf("signerName %q: its bundles %w", k.Namespace, err)
	}
	if len(bundles) == 0 && !optional {
		return nil, fmt.Errorf("signerName %q: %w", k.Namespace, errNoBundle)
	}
	return joinAnchors(string(pod.UID), bundles), nil
}

func (c *Cache) bundleDeleted(k store.ObjectKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	it := c.items[k]
	return it != nil && it.gone
}

// joinAnchors joins the certificates of bundles. It sorts them by a hash of the salt and the certificate. The order therefore differs
// between pods, so no program can rely on it. It does not change while the bundles are unchanged, so files are not rewritten.
func joinAnchors(salt string, bundles []string) []byte {
	type anchor struct {
		place [sha256.Size]byte
		der   []byte
	}
	var all []anchor
	for _, text := range bundles {
		for b, rest := pem.Decode([]byte(text)); b != nil; b, rest = pem.Decode(rest) {
			all = append(all, anchor{sha256.Sum256(append([]byte(salt), b.Bytes...)), b.Bytes})
		}
	}
	sorting.By(all, func(a, b anchor) int {
		return cmp.Or(bytes.Compare(a.place[:], b.place[:]), bytes.Compare(a.der, b.der))
	})
	out := []byte{}
	for _, a := range slices.CompactFunc(all, func(a, b anchor) bool { return bytes.Equal(a.der, b.der) }) {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})...)
	}
	return out
}
