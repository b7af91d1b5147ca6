package source

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/internal/keys"
)

// maxContainers is the maximum number of containers of a pod. The work for a pod grows with the square of this number, and a status of more
// containers hardly fits into the API server's database.
const maxContainers = 1000

// sourcePodOf returns the SourcePod for a pod of the API server. It returns false for a mirror pod, which only represents a static pod of
// this node.
func sourcePodOf(p *v1.Pod) (desired.SourcePod, bool) {
	if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return desired.SourcePod{}, false
	}
	return desired.SourcePod{Pod: neededFields(p), Ending: endingOf(p)}, true
}

// endingOf returns the Ending of a pod, or nil if the pod is not being deleted. The minimum grace period is one second, as in a kubelet. A
// pod can have a grace period of 0 if a finalizer keeps it after a forced deletion.
func endingOf(p *v1.Pod) *desired.Ending {
	if p.DeletionTimestamp == nil {
		return nil
	}
	seconds := p.DeletionGracePeriodSeconds
	if seconds == nil {
		seconds = p.Spec.TerminationGracePeriodSeconds
	}
	if seconds == nil {
		return &desired.Ending{Grace: v1.DefaultTerminationGracePeriodSeconds * time.Second}
	}
	return &desired.Ending{Grace: time.Duration(max(*seconds, 1)) * time.Second, Forced: *seconds == 0}
}

// neededFields returns a copy of a pod with the fields that its containers and local users can read. The copy has no status, because each
// change of the status would cost a write to the disk. Three parts of the status are kept: the QoS class, the generated ResourceClaims,
// and the conditions of readiness gates. The whole status of an ended pod is kept, because it does not change any more and no other copy
// of it exists. Such a pod was evicted, for example, or ended on this node before the store was lost. The copy of a pod with too many
// containers has no spec.
func neededFields(p *v1.Pod) *v1.Pod {
	n := &v1.Pod{Spec: p.Spec}
	n.ObjectMeta = metav1.ObjectMeta{
		Name: p.Name, GenerateName: p.GenerateName, Namespace: p.Namespace, UID: p.UID,
		CreationTimestamp: p.CreationTimestamp, Generation: p.Generation,
		Labels: p.Labels, Annotations: maps.Clone(p.Annotations), OwnerReferences: p.OwnerReferences,
	}
	if n.Annotations == nil {
		n.Annotations = map[string]string{}
	}
	n.Annotations[keys.ConfigSource] = desired.API
	if len(p.Spec.InitContainers)+len(p.Spec.Containers)+len(p.Spec.EphemeralContainers) > maxContainers {
		n.Spec = v1.PodSpec{}
		n.Annotations[keys.TooLarge] = ""
	}
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		n.Status = p.Status
		return n
	}
	n.Status.QOSClass = p.Status.QOSClass
	n.Status.ResourceClaimStatuses = p.Status.ResourceClaimStatuses
	n.Status.ExtendedResourceClaimStatus = p.Status.ExtendedResourceClaimStatus
	for _, c := range p.Status.Conditions {
		waited := func(g v1.PodReadinessGate) bool { return g.ConditionType == c.Type }
		if slices.ContainsFunc(p.Spec.ReadinessGates, waited) {
			n.Status.Conditions = append(n.Status.Conditions, v1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	return n
}
