package podspec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// A ResourceClaim identifies a ResourceClaim object that a pod uses.
type ResourceClaim struct {
	Ref  string // the claim's name within the pod; empty for the claim of extended resources (KEP-5004)
	Name string // the object's name, in the pod's namespace
	Made bool   // whether the object was created for this pod from a template; the pod then owns the object
}

// ResourceClaims lists the claims of a pod. The name of a claim that is created from a template is
// read from the pod's status. A status without a name means that the pod needs no claim. If the
// status has no entry yet for a claim with a template, ResourceClaims returns an error.
//
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
		created := false
		for _, st := range pod.Status.ResourceClaimStatuses {
			if st.Name != c.Name {
				continue
			}
			created = true
			if st.ResourceClaimName != nil {
				out = append(out, ResourceClaim{Ref: c.Name, Name: *st.ResourceClaimName, Made: true})
			}
		}
		if !created {
			return nil, fmt.Errorf("pod claim %q: its ResourceClaim was not created yet", c.Name)
		}
	}
	if st := pod.Status.ExtendedResourceClaimStatus; st != nil && st.ResourceClaimName != "" {
		out = append(out, ResourceClaim{Name: st.ResourceClaimName})
	}
	return out, nil
}

// ClaimRequests returns the claims that a container uses. A key of the map is the name of a ResourceClaim. Its value
// lists the names of the requests in this ResourceClaim that the container uses. An empty request name means all
// requests of the claim.
func ClaimRequests(pod *v1.Pod, ctr *v1.Container) (map[string][]string, error) {
	claims, err := ResourceClaims(pod)
	if err != nil || len(claims) == 0 {
		return nil, err
	}
	out := map[string][]string{}
	for _, c := range claims {
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
