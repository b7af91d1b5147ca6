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

// claimOf gives what the node needs of a pod of the API server. A mirror pod is no
// claim: it only shows a pod that the node has from elsewhere.
func claimOf(p *v1.Pod) (desired.Claim, bool) {
	if _, mirror := p.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return desired.Claim{}, false
	}
	return desired.Claim{Pod: needed(p), Ending: endingOf(p)}, true
}

// endingOf is nil for a pod that nobody deletes. As under a kubelet no container is
// killed at once: one that a finalizer keeps after a forced deletion has a second.
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

// needed copies of a pod what its containers and a person on the device can see, and
// nothing that changes with each status: that would be a write to the disk each time.
// Of the status these stay: its QoS class, the claims that were made for it, and conditions
// that its readiness waits for.
// That of a pod that has ended (by eviction, or on this node before its store was lost)
// stays whole: it changes no more, and nobody else knows what became of the containers.
func needed(p *v1.Pod) *v1.Pod {
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
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		n.Status = p.Status
		return n
	}
	n.Status.QOSClass = p.Status.QOSClass
	n.Status.ResourceClaimStatuses, n.Status.ExtendedResourceClaimStatus = p.Status.ResourceClaimStatuses, p.Status.ExtendedResourceClaimStatus
	for _, c := range p.Status.Conditions {
		waited := func(g v1.PodReadinessGate) bool { return g.ConditionType == c.Type }
		if slices.ContainsFunc(p.Spec.ReadinessGates, waited) {
			n.Status.Conditions = append(n.Status.Conditions, v1.PodCondition{Type: c.Type, Status: c.Status})
		}
	}
	return n
}
