package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/podspec"
)

// maxEphemeral is the maximum number of ephemeral containers of a pod. None can be removed before the pod ends.
const maxEphemeral = 32

// AddEphemeral returns a copy of a pod with another ephemeral container, with its defaults. Its error lists the fields that an API server
// would reject.
func AddEphemeral(pod *v1.Pod, c v1.EphemeralContainer) (*v1.Pod, error) {
	if len(pod.Spec.EphemeralContainers) >= maxEphemeral {
		return nil, fmt.Errorf("the pod already has %d ephemeral containers", maxEphemeral)
	}
	names := map[string]bool{}
	for _, other := range podspec.Containers(&pod.Spec) {
		names[other.Name] = true
	}
	pod = pod.DeepCopy()
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, c)
	container := (*v1.Container)(&pod.Spec.EphemeralContainers[len(pod.Spec.EphemeralContainers)-1].EphemeralContainerCommon)
	defaultContainer(container, false)
	r := &review{pod: pod, spec: &pod.Spec, volumes: map[string]*v1.Volume{}}
	at := field.NewPath("ephemeralContainer")
	r.checkContainer(at, container)
	r.addUnique(at.Child("name"), names, c.Name)
	kind, target := podspec.Find(&pod.Spec, c.TargetContainerName)
	if c.TargetContainerName != "" && (target == nil || kind != podspec.Main) {
		r.addInvalid(at.Child("targetContainerName"), c.TargetContainerName, "must be a container of the pod")
	}
	if err := r.errs.ToAggregate(); err != nil {
		return nil, err
	}
	return pod, nil
}
