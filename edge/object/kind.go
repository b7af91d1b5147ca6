package object

import (
	"context"
	"slices"
	"sort"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
	"github.com/islet-edge/islet/internal/podspec"
)

// Names of the kinds of objects in the store.
const (
	configMapKind = "ConfigMap"
	secretKind    = "Secret"
	serviceKind   = "Service"
	classKind     = "RuntimeClass"
	claimKind     = "PersistentVolumeClaim" // see volume_claims.go
	volumeKind    = "PersistentVolume"
	resourceKind  = "ResourceClaim" // see resource_claims.go

	bundleKind = "ClusterTrustBundle" // see trustbundles.go

	driverKind     = "CSIDriver" // see csi_objects.go
	attachmentKind = "VolumeAttachment"
)

// content is the list of the objects of an item. The list of an item with a name has at most one object. Any other list has all objects of
// a namespace or signer. A list is never modified. A changed list is a new value.
type content interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// A kind describes how a node reads a type of objects, and which fields it needs.
type kind struct {
	alwaysWatched bool // watched with every strategy
	newContent    func() content
	list          func(context.Context, *kube.Client, string, metav1.ListOptions) (c content, version string, err error)
	watch         func(context.Context, *kube.Client, string, metav1.ListOptions) (watch.Interface, error)
	apply         func(content, watch.Event) (c content, version string)
	count         func(content) int
	isImmutable   func(content) bool // reports whether the object can never change

	// get is set for objects that a node may only get. It is nil for objects that the node may list and watch.
	get func(ctx context.Context, client *kube.Client, namespace, name string) (content, error)
	// listReferences returns the keys of other objects that an object references. It may be nil.
	listReferences func(content) []store.ObjectKey
	// optionalReferences returns the keys of referenced objects that are read only on request.
	optionalReferences func(content) []store.ObjectKey
	// isSettled reports whether a pod can start with the object in its current state. For example, it returns true for a bound claim. If it
	// returns false, the object is read again for each pod that starts. If the function is nil, pods can start with every object.
	isSettled func(content) bool
}

func allKinds(node string) map[string]*kind {
	configMaps := kindOf(func(l *v1.ConfigMapList) *[]v1.ConfigMap { return &l.Items }, func(m *v1.ConfigMap) bool {
		m.ObjectMeta = metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}
		return true
	})
	configMaps.isImmutable = func(c content) bool {
		l := c.(*v1.ConfigMapList)
		return len(l.Items) == 1 && podspec.IsTrue(l.Items[0].Immutable)
	}
	secrets := kindOf(func(l *v1.SecretList) *[]v1.Secret { return &l.Items }, func(s *v1.Secret) bool {
		s.ObjectMeta = metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}
		return true
	})
	secrets.isImmutable = func(c content) bool {
		l := c.(*v1.SecretList)
		return len(l.Items) == 1 && podspec.IsTrue(l.Items[0].Immutable)
	}
	services := kindOf(func(l *v1.ServiceList) *[]v1.Service { return &l.Items }, func(s *v1.Service) bool {
		*s = v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
			Spec:       v1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports},
		}
		return s.Spec.ClusterIP != "" && s.Spec.ClusterIP != v1.ClusterIPNone
	})
	services.alwaysWatched = true
	services.isImmutable = func(content) bool { return false }
	classes := kindOf(func(l *nodev1.RuntimeClassList) *[]nodev1.RuntimeClass { return &l.Items }, func(c *nodev1.RuntimeClass) bool {
		*c = nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: c.Name}, Handler: c.Handler} // the overhead is part of the pod
		return true
	})
	classes.alwaysWatched = true
	classes.isImmutable = func(content) bool { return false } // the handler is immutable, but the class can be replaced
	return map[string]*kind{
		configMapKind: configMaps, secretKind: secrets, serviceKind: services, classKind: classes,
		claimKind: newClaimKind(), volumeKind: newVolumeKind(node),
		driverKind: newDriverKind(), attachmentKind: newAttachmentKind(), resourceKind: resourceClaims(), bundleKind: newBundleKind(),
	}
}

// kindOf returns the kind for objects of type T. L is the type of a list of such objects. The function strip removes the fields that a node
// does not need. strip returns false if the node does not need the object at all.
func kindOf[T, L any, PT interface {
	kube.Object[T]
	metav1.Object
}, PL interface {
	kube.Object[L]
	content
	metav1.ListInterface
}](items func(*L) *[]T, strip func(*T) bool) *kind {
	// Do not use slices.SortFunc: each instantiation adds 20 KB to the program, 90 KB in total.
	sortByName := func(list []T) {
		sort.Slice(list, func(i, j int) bool { return PT(&list[i]).GetName() < PT(&list[j]).GetName() })
	}
	return &kind{
		newContent: func() content { return PL(new(L)) },
		count:      func(c content) int { return len(*items((*L)(c.(PL)))) },
		list: func(ctx context.Context, client *kube.Client, namespace string, o metav1.ListOptions) (content, string, error) {
			got, err := kube.List[L, PL](ctx, client, namespace, o)
			if err != nil {
				return nil, "", err
			}
			out := new(L)
			*items(out) = slices.DeleteFunc(*items(got), func(t T) bool { return !strip(&t) })
			for i := range *items(out) {
				strip(&(*items(out))[i])
			}
			sortByName(*items(out))
			return PL(out), PL(got).GetResourceVersion(), nil
		},
		watch: func(ctx context.Context, client *kube.Client, namespace string, o metav1.ListOptions) (watch.Interface, error) {
			return kube.Watch[T, PT](ctx, client, namespace, o)
		},
		apply: func(c content, e watch.Event) (content, string) {
			obj, ok := e.Object.(PT)
			if !ok {
				return c, ""
			}
			version, out := obj.GetResourceVersion(), new(L)
			list := slices.DeleteFunc(slices.Clone(*items((*L)(c.(PL)))), func(t T) bool {
				has := PT(&t)
				return has.GetName() == obj.GetName() && has.GetNamespace() == obj.GetNamespace()
			})
			if stripped := (*T)(obj); e.Type != watch.Deleted && strip(stripped) {
				list = append(list, *stripped)
			}
			sortByName(list)
			*items(out) = list
			return PL(out), version
		},
	}
}
