package object

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/edge/store"
)

// ConfigMap returns a ConfigMap that the pod references, without its metadata. If the ConfigMap does not exist, apierrors.IsNotFound is
// true for the error. A pod that used the ConfigMap before its deletion still gets it.
func (c *Cache) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	got, err := c.read(pod, configMapKind, pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	return &got.(*v1.ConfigMapList).Items[0], nil
}

// Secret returns a Secret that the pod references. It works like ConfigMap.
func (c *Cache) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	got, err := c.read(pod, secretKind, pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	return &got.(*v1.SecretList).Items[0], nil
}

// Deleted reports whether a ConfigMap or Secret of the pod was deleted, according to the API server. It returns false if the server could
// not be reached.
func (c *Cache) Deleted(pod *v1.Pod, kind, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	it := c.items[store.ObjectKey{Kind: kind, Namespace: pod.Namespace, Name: name}]
	return it != nil && it.gone
}

// Services returns the services for the pod's environment: the service of the API server, and the services of the pod's namespace. If
// enableServiceLinks is false, it omits the services of the namespace. For a static pod, it returns only services that are already known.
func (c *Cache) Services(pod *v1.Pod) ([]v1.Service, error) {
	var services []v1.Service
	r := referencesOf(pod)
	for k := range r.objects {
		if k.Kind != serviceKind {
			continue
		}
		got, err := c.read(pod, k.Kind, k.Namespace, k.Name)
		if err == nil {
			services = append(services, got.(*v1.ServiceList).Items...)
		} else if !apierrors.IsNotFound(err) && !isStatic(pod) {
			return nil, err
		}
	}
	return slices.Clip(services), nil
}

// unreachedError means that an object is not known yet, and that the API server cannot be reached.
type unreachedError struct{ error }

// Unwrap returns the error of the request.
func (e unreachedError) Unwrap() error { return e.error }

// Unreached returns true. The package that builds a container's environment checks for this method.
func (unreachedError) Unreached() bool { return true }

// read returns the known content of an item. For an item with a name, the result contains exactly one object.
func (c *Cache) read(pod *v1.Pod, kind, namespace, name string) (content, error) {
	k := store.ObjectKey{Kind: kind, Namespace: namespace, Name: name}
	c.mu.Lock()
	defer c.mu.Unlock()
	it := c.items[k]
	if it == nil {
		return nil, fmt.Errorf("%s %s/%s: %w", kind, namespace, name, errUnread)
	}
	ranBefore, uses := it.users[pod.UID]
	switch {
	case !uses:
		return nil, fmt.Errorf("%s: the pod does not reference it", it)
	case it.mustBeRead(pod.UID):
		return nil, fmt.Errorf("%s: %w", it, it.refuse(pod.UID))
	case !it.isKnown() && it.err != nil && !kube.IsAnswer(it.err):
		return nil, unreachedError{it.err}
	case !it.isKnown() && it.err != nil:
		return nil, it.err
	case !it.isKnown():
		return nil, fmt.Errorf("%s: %w", it, errUnread)
	case name != "" && (!it.exists() || it.gone && !ranBefore):
		resource := strings.ToLower(kind)
		if it.kind.get != nil {
			resource += "s" // the resource name in the API server's messages
		}
		return nil, apierrors.NewNotFound(v1.Resource(resource), name) // the message of a kubelet: configmap "x" not found
	}
	return it.content, nil
}
