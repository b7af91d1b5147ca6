package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// A ResourceClaim is one that a pod uses.
type ResourceClaim struct {
	Ref  string // its name within the pod; empty: of extended resources (KEP-5004)
	Name string // of the object, in the pod's namespace
	Made bool   // for this pod, from a template: the pod owns it
}

// ResourceClaims lists the claims of a pod. One of a template has its name in the pod's
// status, where none may be said to be needed.
// https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/
func ResourceClaims(pod *v1.Pod) (out []ResourceClaim, err error) {
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			out = append(out, ResourceClaim{Ref: c.Name, Name: *c.ResourceClaimName})
			continue
		}
		if c.ResourceClaimTemplateName == nil {
			return nil, fmt.Errorf("pod claim %q names neither a claim nor a template", c.Name)
		}
		known := false
		for _, st := range pod.Status.ResourceClaimStatuses {
			if st.Name != c.Name {
				continue
			}
			if known = true; st.ResourceClaimName != nil {
				out = append(out, ResourceClaim{Ref: c.Name, Name: *st.ResourceClaimName, Made: true})
			}
		}
		if !known {
			return nil, fmt.Errorf("pod claim %q: its ResourceClaim was not created yet", c.Name)
		}
	}
	if st := pod.Status.ExtendedResourceClaimStatus; st != nil && st.ResourceClaimName != "" {
		out = append(out, ResourceClaim{Name: st.ResourceClaimName})
	}
	return out, nil
}

// ClaimRequests gives what a container uses of claims: by the name of the object, the
// requests in it; an empty one stands for all.
func ClaimRequests(pod *v1.Pod, ctr *v1.Container) (map[string][]string, error) {
	all, err := ResourceClaims(pod)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	out := map[string][]string{}
	for _, c := range all {
		for _, used := range ctr.Resources.Claims {
			if c.Ref != "" && used.Name == c.Ref {
				out[c.Name] = append(out[c.Name], used.Request)
			}
		}
		if c.Ref == "" {
			for _, m := range pod.Status.ExtendedResourceClaimStatus.RequestMappings {
				if q := ctr.Resources.Requests[v1.ResourceName(m.ResourceName)]; m.ContainerName == ctr.Name && !q.IsZero() {
					out[c.Name] = append(out[c.Name], m.RequestName)
				}
			}
		}
	}
	return out, nil
}
