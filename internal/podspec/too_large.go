package podspec

import (
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keys"
)

// IsTooLarge reports whether the spec of a pod was removed because the pod is too large for the node. Such a pod has no containers, which
// the API server does not allow for any pod.
func IsTooLarge(pod *v1.Pod) bool {
	_, marked := pod.Annotations[keys.TooLarge]
	return marked && len(pod.Spec.Containers) == 0
}
