package store

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// The resources of a pod are stored over a restart, not written again if unchanged, and removed with the
// pod.
func TestAllocations(t *testing.T) {
	s := open(t, t.TempDir()+"/islet.db")
	ctx := t.Context()
	web := typical("web")
	must(t, s.UpdatePods(ctx, []Pod{web}, nil))
	give := func(cpu string, generation int64) Allocation {
		c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}}
		a := Allocation{generation, &v1.PodSpec{Containers: []v1.Container{c}}}
		must(t, s.Allocate(ctx, map[types.UID]Allocation{web.Pod.UID: a, "stranger": a}))
		return a
	}
	give("100m", 2)
	last := give("200m", 3)
	give("200m", 3) // again
	s = reopen(t, s)
	all, err := s.Allocations(ctx)
	if got := all[web.Pod.UID]; err != nil || len(all) != 1 || got.Generation != 3 ||
		!equality.Semantic.DeepEqual(got.Resources, last.Resources) {
		t.Errorf("got %+v: %v", all, err)
	}
	must(t, s.UpdatePods(ctx, nil, []types.UID{web.Pod.UID}))
	if all, err = s.Allocations(ctx); err != nil || len(all) != 0 {
		t.Errorf("of a pod that is gone: %+v, %v", all, err)
	}
}
