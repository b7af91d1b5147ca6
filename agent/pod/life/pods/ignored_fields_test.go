package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/edge/desired"
)

// TestIgnoredFieldsAreToldOnce checks that the event about fields without an effect is sent once for each pod. The event is not repeated
// when the pod's status, labels or resources change, or when the agent restarts.
func TestIgnoredFieldsAreToldOnce(t *testing.T) {
	w := newWorld(t)
	pod := aPod("web", "1", 0)
	pod.Generation = 1
	pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi")}
	shown := func(pod *v1.Pod, admitted bool) {
		t.Helper()
		w.setPods(t, desired.API, pod, aPod("plain", "1", 0))
		for _, p := range w.desired.List() {
			w.inputs[p.Pod.UID] = plan.Input{Want: p.Pod, Admitted: admitted, Observed: plan.Observed{Containers: []plan.Container{{Name: "c", State: plan.Running}}}}
			w.refreshStatus(p.Pod.UID)
			w.refreshStatus(p.Pod.UID)
		}
	}
	shown(pod, false)
	w.checkEvents(t)
	shown(pod, true)
	w.checkEvents(t, "Warning web FieldIgnored")
	w.restart(t, "web", "plain")
	shown(pod, true)
	w.checkEvents(t)

	labelled := pod.DeepCopy()
	labelled.Labels = map[string]string{"new": "1"}
	shown(labelled, true)
	w.checkEvents(t)

	resized := labelled.DeepCopy()
	resized.Generation = 2
	resized.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("2")
	shown(resized, true)
	w.checkEvents(t)
}
