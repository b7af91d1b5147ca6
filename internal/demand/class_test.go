package demand_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// combinations contains each combination of a request and a limit for CPU and memory. An empty value is missing.
func combinations() (out []v1.ResourceRequirements) {
	type pair struct{ request, limit string }
	var pairs []pair
	for _, request := range []string{"", "0", "1", "2"} {
		for _, limit := range []string{"", "0", "1", "2"} {
			pairs = append(pairs, pair{request, limit})
		}
	}
	for _, cpu := range pairs {
		for _, memory := range pairs {
			r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
			for name, p := range map[string]pair{"cpu": cpu, "memory": memory} {
				if p.request != "" {
					r.Requests[v1.ResourceName(name)] = list(name, p.request)[v1.ResourceName(name)]
				}
				if p.limit != "" {
					r.Limits[v1.ResourceName(name)] = list(name, p.limit)[v1.ResourceName(name)]
				}
			}
			out = append(out, r)
		}
	}
	return out
}

// withDefaults returns the resources as the API server stores them: a missing request is the limit. A request of zero is not missing.
func withDefaults(r v1.ResourceRequirements) v1.ResourceRequirements {
	r = *r.DeepCopy()
	for name, limit := range r.Limits {
		if _, found := r.Requests[name]; !found {
			r.Requests[name] = limit
		}
	}
	return r
}

// classOf returns the class of resources with their defaults, by the rules of Kubernetes' documentation. A list of zeros counts as nothing.
func classOf(all ...v1.ResourceRequirements) v1.PodQOSClass {
	guaranteed, effort := true, true
	for _, r := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := r.Requests[name], r.Limits[name]
			guaranteed = guaranteed && !limit.IsZero() && request.Equal(limit)
			effort = effort && request.IsZero() && limit.IsZero()
		}
	}
	switch {
	case effort:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// TestClassOfZero checks the class for each combination of missing, zero and positive requests and limits, of one container, of two
// containers, of an init container, and of the pod as a whole. The class is the same before and after the API server's defaults.
func TestClassOfZero(t *testing.T) {
	check := func(what string, want v1.PodQOSClass, spec v1.PodSpec) {
		t.Helper()
		if got := demand.Class(&v1.Pod{Spec: spec}); got != want {
			t.Errorf("%s: %s, not %s", what, got, want)
		}
	}
	container := func(r v1.ResourceRequirements) []v1.Container { return []v1.Container{{Name: "c", Resources: r}} }
	sure := v1.ResourceRequirements{Requests: list("cpu", "1", "memory", "1"), Limits: list("cpu", "1", "memory", "1")}
	for _, r := range combinations() {
		full := withDefaults(r)
		text := fmt.Sprintf("requests %v, limits %v", r.Requests, r.Limits)
		check("container with "+text, classOf(full), v1.PodSpec{Containers: container(r)})
		check("container with defaults of "+text, classOf(full), v1.PodSpec{Containers: container(full)})
		check("guaranteed container beside "+text, classOf(full, sure), v1.PodSpec{Containers: append(container(r), container(sure)...)})
		check("init container with "+text, classOf(full, sure), v1.PodSpec{InitContainers: container(r), Containers: container(sure)})
		spec := v1.PodSpec{Resources: &r, Containers: container(v1.ResourceRequirements{})}
		if demand.AsWhole(&v1.Pod{Spec: spec}) { // otherwise the containers decide
			check("pod with "+text, classOf(full), spec)
		}
	}
}

// TestExclusiveOfZero checks that a container with a CPU request of zero has no exclusive CPUs, unlike one without a request.
func TestExclusiveOfZero(t *testing.T) {
	for request, want := range map[string]int{"": 2, "2": 2, "0": 0} {
		c := v1.Container{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: list("cpu", "2", "memory", "1")}}
		if request != "" {
			c.Resources.Requests = list("cpu", request)
		}
		if got := demand.ExclusiveCPUs(&v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}, &c); got != want {
			t.Errorf("a request of %q: %d exclusive CPUs, not %d", request, got, want)
		}
	}
}
