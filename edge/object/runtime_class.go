package object

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// RuntimeHandler returns the handler of the pod's RuntimeClass, or "" for the node's default if the pod specifies no class. An unknown
// class is an error, because a pod that needs more isolation must not run with less. The handler is stored, so a pod that ran here before
// also starts without a link. A static pod starts before any RuntimeClass can be read, so the name of its class is used as the handler. See
// https://kubernetes.io/docs/concepts/containers/runtime-class/.
func (c *Cache) RuntimeHandler(pod *v1.Pod) (string, error) {
	class := classOf(pod)
	if class == "" || isStatic(pod) {
		return class, nil
	}
	got, err := c.read(pod, classKind, "", class)
	switch {
	case apierrors.IsNotFound(err):
		return "", apierrors.NewNotFound(nodev1.Resource("runtimeclass"), class) // a kubelet's message
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
