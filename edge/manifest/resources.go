package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/demand"
)

// checkResources checks limits and requests. The caller passes the check for the names of the resources.
func (r *review) checkResources(p *field.Path, res v1.ResourceRequirements, name func(*field.Path, v1.ResourceName)) {
	computing, hugepages := false, false
	for _, part := range []struct {
		at   *field.Path
		list v1.ResourceList
	}{{p.Child("limits"), res.Limits}, {p.Child("requests"), res.Requests}} {
		for _, n := range slices.Sorted(maps.Keys(part.list)) {
			at, q := part.at.Key(string(n)), part.list[n]
			name(at, n)
			r.checkQuantity(at, n, q)
			computing = computing || n == v1.ResourceCPU || n == v1.ResourceMemory
			hugepages = hugepages || isHugepages(n)
		}
	}
	if hugepages && !computing {
		r.addForbidden(p, "hugepages require cpu or memory")
	}
	for _, n := range slices.Sorted(maps.Keys(res.Requests)) {
		request := res.Requests[n]
		limit, limited := res.Limits[n]
		at := p.Child("requests").Key(string(n))
		switch {
		case !limited && !canOvercommit(n):
			r.rejectMissing(p.Child("limits").Key(string(n)), "cannot be overcommitted, so it needs a limit")
		case limited && !canOvercommit(n) && request.Cmp(limit) != 0:
			r.addInvalid(at, request.String(), fmt.Sprintf("must be equal to the limit of %s", limit.String()))
		case limited && request.Cmp(limit) > 0:
			r.addInvalid(at, request.String(), fmt.Sprintf("must be at most the limit of %s", limit.String()))
		}
	}
	r.claimRefs(p.Child("claims"), res.Claims)
}

func (r *review) checkQuantity(p *field.Path, name v1.ResourceName, q resource.Quantity) {
	r.notNegativeQuantity(p, q)
	r.failIf(isExtended(name) && q.MilliValue()%1000 != 0, p, q.String(), "must be a whole number")
	if size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix); ok {
		page, err := resource.ParseQuantity(size)
		r.failIf(err != nil || page.Sign() <= 0 || page.MilliValue()%1000 != 0 || q.Value()%page.Value() != 0, p, q.String(),
			"must be a multiple of the page size")
	}
}

// containerResource checks the name of a container's resource.
func (r *review) containerResource(p *field.Path, name v1.ResourceName) {
	standard := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage || isHugepages(name)
	switch {
	case len(validation.IsQualifiedName(string(name))) > 0:
		r.checkRule(p, string(name), validation.IsQualifiedName)
	case !strings.Contains(string(name), "/"):
		r.failIf(!standard, p, name, "is not a resource of a container")
	case !isNative(name):
		r.failIf(!isExtended(name), p, name, "is not a name of an extended resource")
	}
}

// isNative reports whether a resource is defined by Kubernetes.
func isNative(name v1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix)
}

// isExtended reports whether a resource is an extended resource, such as the devices of a device plugin. Its name must also be valid with
// the prefix "requests.", because quotas use the name with this prefix.
func isExtended(name v1.ResourceName) bool {
	return !isNative(name) && !strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+string(name))) == 0
}

func canOvercommit(name v1.ResourceName) bool { return isNative(name) && !isHugepages(name) }

// claimRefs checks the resource claims that a container uses. A container may use a whole claim of the pod, or only some requests of the
// claim.
func (r *review) claimRefs(p *field.Path, claims []v1.ResourceClaim) {
	whole, parts := map[string]bool{}, map[string]bool{}
	for i, claim := range claims {
		at := p.Index(i)
		if !r.requireText(at, claim.Name) {
			continue
		}
		part := claim.Name + "/" + claim.Request
		twice := whole[claim.Name] || parts[part]
		if claim.Request == "" {
			for key := range parts {
				twice = twice || strings.HasPrefix(key, part)
			}
			whole[claim.Name] = true
		} else {
			r.checkRule(at.Child("request"), claim.Request, validation.IsDNS1123Label)
			parts[part] = true
		}
		if twice {
			r.addDuplicate(at, strings.TrimSuffix(part, "/"))
		}
		isClaim := func(c v1.PodResourceClaim) bool { return c.Name == claim.Name }
		if !slices.ContainsFunc(r.spec.ResourceClaims, isClaim) {
			r.errs = append(r.errs, field.NotFound(at, claim.Name))
		}
	}
}

// podResources checks the pod-level resources (KEP-2837) and the overhead.
func (r *review) podResources(p *field.Path) {
	if r.spec.Overhead != nil {
		overhead := v1.ResourceRequirements{Limits: r.spec.Overhead}
		before := len(r.errs)
		r.checkResources(field.NewPath("spec", "overhead"), overhead, r.containerResource)
		for _, e := range r.errs[before:] { // the path of the overhead has no element "limits"
			e.Field = strings.Replace(e.Field, "spec.overhead.limits", "spec.overhead", 1)
		}
	}
	res := r.spec.Resources
	if res == nil {
		return
	}
	if r.spec.OS != nil && r.spec.OS.Name == v1.Windows {
		r.addForbidden(p, notForWindows)
		return
	}
	if res.Claims != nil {
		r.addForbidden(p.Child("claims"), "only containers have claims")
	}
	r.checkResources(p, *res, func(p *field.Path, name v1.ResourceName) {
		r.failIf(!podLevel(name), p, name, "only cpu, memory and hugepages can be set for a pod")
	})
	r.podCoversContainers(p, res)
}

// podCoversContainers checks that the pod-level resources are at least the sum of the containers' resources.
func (r *review) podCoversContainers(p *field.Path, res *v1.ResourceRequirements) {
	covers := func(at *field.Path, podList v1.ResourceList, name v1.ResourceName, part resource.Quantity) {
		if have, found := podList[name]; found && part.Cmp(have) > 0 {
			r.addInvalid(at.Key(string(name)), have.String(), fmt.Sprintf("must be at least the %s of the containers", part.String()))
		}
	}
	requests, limits := demand.ContainerRequests(r.spec), demand.ContainerLimits(r.spec)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		covers(p.Child("requests"), res.Requests, name, requests[name])
	}
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if isHugepages(name) {
			covers(p.Child("limits"), res.Limits, name, limits[name])
		}
	}
	for i := range r.spec.Containers {
		list := r.spec.Containers[i].Resources.Limits
		at := field.NewPath("spec", "containers").Index(i).Child("resources", "limits")
		for _, name := range slices.Sorted(maps.Keys(list)) {
			part, podLimit := list[name], res.Limits[name]
			_, limited := res.Limits[name]
			r.failIf(limited && part.Cmp(podLimit) > 0, at.Key(string(name)), part.String(),
				fmt.Sprintf("must be at most the pod's limit of %s", podLimit.String()))
		}
	}
}
