package object

import (
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// resourceClaims returns the kind for ResourceClaims, which allocate devices (dynamic resource allocation). A node may get the claims of
// its pods.
func resourceClaims() *kind {
	k := getOnlyKind(func(l *resourcev1.ResourceClaimList) *[]resourcev1.ResourceClaim {
		return &l.Items
	}, func(c *resourcev1.ResourceClaim) bool {
		owners := c.OwnerReferences
		c.ObjectMeta = volumeMetadata(c.ObjectMeta)
		c.OwnerReferences = owners // the pod owns the claim of a template
		c.Spec = resourcev1.ResourceClaimSpec{}
		c.Status.Devices = nil
		return true
	})
	k.isSettled = func(c content) bool {
		l := c.(*resourcev1.ResourceClaimList).Items
		return len(l) == 1 && l[0].Status.Allocation != nil && len(l[0].Status.ReservedFor) > 0
	}
	return k
}

// ResourceClaim returns a claim of the pod. The status of the claim contains the allocation, and the pods that may use the claim.
func (c *Cache) ResourceClaim(pod *v1.Pod, name string) (*resourcev1.ResourceClaim, error) {
	got, err := c.read(pod, resourceKind, pod.Namespace, name)
	if err != nil {
		return nil, err
	}
	return &got.(*resourcev1.ResourceClaimList).Items[0], nil
}
