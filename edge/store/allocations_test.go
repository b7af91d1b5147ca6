package store

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// TestAllocations checks that the allocated resources of a pod survive a restart and are removed with the pod. Unchanged resources are not
// written again.
func TestAllocations(t *testing.T) {
	s := open(t, t.TempDir()+"/islet.db")
	ctx := t.Context()
	web := typical("web")
	must(t, s.UpdatePods(ctx, []Pod{web}, nil))
	must(t, s.MarkFilled(ctx))
	give := func(cpu string, generation int64) Allocation {
		c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}
		a := Allocation{generation, &v1.PodSpec{Containers: []v1.Container{c}}}
		must(t, s.Allocate(ctx, map[types.UID]Allocation{web.Pod.UID: a, "stranger": a}))
		return a
	}
	give("100m", 2)
	last := give("200m", 3)
	give("200m", 3) // the resources are unchanged
	s = reopen(t, s)
	list, err := s.Allocations(ctx)
	if got := list[web.Pod.UID]; err != nil || len(list) != 1 || got.Generation != 3 ||
		!equality.Semantic.DeepEqual(got.Resources, last.Resources) {
		t.Errorf("got %+v: %v", list, err)
	}
	must(t, s.UpdatePods(ctx, nil, []types.UID{web.Pod.UID}))
	if list, err = s.Allocations(ctx); err != nil || len(list) != 0 {
		t.Errorf("allocations of a removed pod: %+v, %v", list, err)
	}
}
