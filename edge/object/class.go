package object

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// RuntimeHandler gives the handler of the pod's RuntimeClass; of a pod that names no
// class it is empty, which is the node's default. There is none for a class that the
// API server does not have: a pod that asks for more isolation must not run with
// less. The class of a pod that ran here before is known without a link. A static
// pod starts before anything of the API is known, so the name of its class is the
// handler's.
// https://kubernetes.io/docs/concepts/containers/runtime-class/
func (c *Cache) RuntimeHandler(pod *v1.Pod) (string, error) {
	class := classOf(pod)
	if class == "" || static(pod) {
		return class, nil
	}
	got, err := c.read(pod, classKind, "", class)
	switch {
	case apierrors.IsNotFound(err):
		return "", apierrors.NewNotFound(nodev1.Resource("runtimeclass"), class) // in a kubelet's words
	case err != nil:
		return "", fmt.Errorf("failed to lookup RuntimeClass %s: %w", class, err)
	}
	return got.(*nodev1.RuntimeClassList).Items[0].Handler, nil
}

func classOf(pod *v1.Pod) string {
	if pod.Spec.RuntimeClassName == nil {
		return ""
	}
	return *pod.Spec.RuntimeClassName
}
