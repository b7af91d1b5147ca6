package manifest

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/demand"
)

// roundUp rounds every quantity up to thousandths.
func roundUp(list v1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// requestsFromLimits sets the missing request of each resource to its limit.
func requestsFromLimits(r *v1.ResourceRequirements) {
	if r.Limits != nil && r.Requests == nil {
		r.Requests = make(v1.ResourceList, len(r.Limits))
	}
	for name, quantity := range r.Limits {
		if _, found := r.Requests[name]; !found {
			r.Requests[name] = quantity.DeepCopy()
		}
	}
}

// defaultPodResources completes the pod-level resources (KEP-2837). A missing hugepage limit is set to the sum of the containers' limits. A
// missing request is set to the sum of the containers' requests. If the containers have no requests for the resource, the missing request
// is set to the limit.
func defaultPodResources(spec *v1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	for name, quantity := range demand.ContainerLimits(spec) {
		_, requested := r.Requests[name]
		_, limited := r.Limits[name]
		if isHugepages(name) && !requested && !limited {
			r.Limits = set(r.Limits, name, quantity)
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	for name, quantity := range demand.ContainerRequests(spec) {
		if _, found := r.Requests[name]; !found && podLevel(name) && !isHugepages(name) {
			r.Requests = set(r.Requests, name, quantity)
		}
	}
	for name, quantity := range r.Limits {
		if _, found := r.Requests[name]; !found && podLevel(name) {
			r.Requests = set(r.Requests, name, quantity.DeepCopy())
		}
	}
}

func set(list v1.ResourceList, name v1.ResourceName, quantity resource.Quantity) v1.ResourceList {
	if list == nil {
		list = v1.ResourceList{}
	}
	list[name] = quantity
	return list
}

// podLevel reports whether a resource can be set at the pod level.
func podLevel(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || isHugepages(name)
}

func isHugepages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
