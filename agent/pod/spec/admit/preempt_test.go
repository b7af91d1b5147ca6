package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
)

func ranked(priority int32) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.Priority = &priority }
}

func withRequests(cpu, memory string, guaranteed bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		r := &p.Spec.Containers[0].Resources
		r.Requests = v1.ResourceList{}
		for name, q := range map[v1.ResourceName]string{"cpu": cpu, "memory": memory} {
			if q != "" {
				r.Requests[name] = resource.MustParse(q)
			}
		}
		if guaranteed {
			r.Limits = r.Requests
		}
	}
}

func TestCritical(t *testing.T) {
	for _, tt := range []struct {
		pod  *v1.Pod
		want bool
	}{
		{pod("plain"), false},
		{pod("api", withSource(keys.SourceAPI)), false},
		{pod("static", withSource(keys.SourceFile)), true},
		{pod("applied", withSource(keys.SourceLocal)), true},
		{pod("user", withSource(keys.SourceAPI), ranked(1_000_000_000)), false},
		{pod("system", withSource(keys.SourceAPI), ranked(2_000_000_000)), true},
	} {
		if got := Critical(tt.pod); got != tt.want {
			t.Errorf("%s: %v", tt.pod.Name, got)
		}
	}
}

func TestPreempt(t *testing.T) {
	n := Node{Allocatable: v1.ResourceList{"cpu": resource.MustParse("10"), "memory": resource.MustParse("10Gi"), "pods": resource.MustParse("4")}}
	static, system := withSource(keys.SourceFile), ranked(2_000_000_000)
	for _, tt := range []struct {
		name   string
		pod    *v1.Pod
		others []*v1.Pod
		want   string // names in order; "no": a preemption does not suffice
	}{
		{"no critical pod", pod("a", withRequests("2", "", false)), []*v1.Pod{pod("b", withRequests("9", "", false))}, "no"},
		{"enough resources", pod("a", static, withRequests("2", "", false)), []*v1.Pod{pod("b", withRequests("8", "", false))}, ""},
		{"one pod suffices", pod("a", static, withRequests("2", "", false)), []*v1.Pod{pod("b", withRequests("9", "", false))}, "b"},
		{"more than the node has", pod("a", static, withRequests("11", "", false)), []*v1.Pod{pod("b", withRequests("9", "", false))}, "no"},
		{"others are critical too", pod("a", static, withRequests("2", "", false)), []*v1.Pod{pod("b", static, withRequests("9", "", false))}, "no"},
		{"a system pod of lower priority", pod("a", ranked(2_000_001_000), withRequests("2", "", false)), []*v1.Pod{pod("b", system, withRequests("9", "", false))}, "b"},
		{"a system pod of equal priority", pod("a", system, withRequests("2", "", false)), []*v1.Pod{pod("b", system, withRequests("9", "", false))}, "no"},
		{"the smallest sufficient pod", pod("a", static, withRequests("3", "", false)), []*v1.Pod{pod("b", withRequests("2", "", false)), pod("c", withRequests("3", "", false)), pod("d", withRequests("5", "", false))}, "c"},
		{"the largest first, then the rest", pod("a", static, withRequests("8", "", false)), []*v1.Pod{pod("b", withRequests("2", "", false)), pod("c", withRequests("3", "", false)), pod("d", withRequests("5", "", false))}, "d c"},
		{"burstable before guaranteed", pod("a", static, withRequests("3", "", false)), []*v1.Pod{pod("b", withRequests("5", "1Gi", true)), pod("c", withRequests("5", "", false))}, "c"},
		{"guaranteed if necessary", pod("a", static, withRequests("8", "", false)), []*v1.Pod{pod("b", withRequests("5", "1Gi", true)), pod("c", withRequests("5", "", false))}, "b c"},
		{"a pod without requests for the number of pods", pod("a", static), []*v1.Pod{pod("b"), pod("c", withRequests("1", "", false)), pod("d", withRequests("1", "1Gi", true)), pod("e", withRequests("1", "", false))}, "b"},
		{"two resources at once", pod("a", static, withRequests("4", "4Gi", false)), []*v1.Pod{pod("b", withRequests("5", "", false)), pod("c", withRequests("", "8Gi", false)), pod("d", withRequests("4", "2Gi", false))}, "d c"},
		{"both resources, by two", pod("a", static, withRequests("5", "9Gi", false)), []*v1.Pod{pod("b", withRequests("6", "", false)), pod("c", withRequests("", "8Gi", false))}, "b c"},
	} {
		var others []*Holder
		for _, o := range tt.others {
			others = append(others, NewHolder(o))
		}
		got := "no"
		if s, ok := Preempt(NewHolder(tt.pod), others, nil, n); ok {
			got = names(s.Pods)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestBeside checks that the resources of a pod in admission count as used, and that such a pod is not preempted.
func TestBeside(t *testing.T) {
	n := Node{Allocatable: v1.ResourceList{"cpu": resource.MustParse("4")}}
	a, b, c := NewHolder(pod("a", withSource(keys.SourceFile), withRequests("3", "", false))),
		NewHolder(pod("b", withRequests("2", "", false))),
		NewHolder(pod("c", withRequests("2", "", false)))
	if s, ok := Preempt(a, []*Holder{b}, []*Holder{c}, n); ok {
		t.Errorf("preempts pods although a pod in admission needs the rest: %q", names(s.Pods))
	}
	if s, ok := Preempt(a, []*Holder{b, c}, nil, n); !ok || names(s.Pods) != "b c" || s.Signal != "cpu" {
		t.Errorf("%q for %s, %v", names(s.Pods), s.Signal, ok)
	}
}

func names(pods []*Holder) string {
	var all []string
	for _, h := range pods {
		all = append(all, h.Pod.Name)
	}
	return strings.Join(all, " ")
}

// FuzzPreempt checks that the preempted pods suffice, have a lower priority and are no more than necessary. The order of the pods must not
// matter. Guaranteed pods are preempted only if all other pods do not suffice.
func FuzzPreempt(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		random := func(name string) *v1.Pod {
			p := pod(name, withRequests(fmt.Sprint(r.IntN(4)), fmt.Sprint(r.IntN(4), "Gi"), r.IntN(2) == 0), withSource([]string{keys.SourceAPI, keys.SourceFile}[r.IntN(4)/3]))
			if r.IntN(2) == 0 {
				ranked([]int32{0, 5, 2_000_000_000, 2_000_001_000}[r.IntN(4)])(p)
			}
			return p
		}
		n := Node{Allocatable: v1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("8")}}
		me := NewHolder(random("me"))
		var others []*Holder
		for i := range r.IntN(12) {
			if h := NewHolder(random(fmt.Sprint("p", i))); Admit(h, others, n) == nil {
				others = append(others, h)
			}
		}
		check(t, me, others, n)
	})
}

func check(t *testing.T, me *Holder, others []*Holder, n Node) {
	s, ok := Preempt(me, others, nil, n)
	yielding := slices.DeleteFunc(slices.Clone(others), func(h *Holder) bool { return !mayPreempt(h.Pod, me.Pod) })
	fits := func(without []*Holder) bool {
		rest := slices.DeleteFunc(slices.Clone(others), func(h *Holder) bool { return slices.Contains(without, h) })
		return len(findShortages(me, rest, n)) == 0
	}
	if !ok {
		if Critical(me.Pod) && fits(yielding) {
			t.Fatalf("%+v is rejected although a preemption would suffice", me.Pod.Spec)
		}
		return
	}
	if !Critical(me.Pod) || !fits(s.Pods) {
		t.Fatalf("the preemption of %q does not suffice", names(s.Pods))
	}
	guaranteed := func(h *Holder) bool { return demand.Class(h.Pod) == v1.PodQOSGuaranteed }
	if slices.ContainsFunc(s.Pods, guaranteed) && fits(slices.DeleteFunc(slices.Clone(yielding), guaranteed)) {
		t.Fatalf("%q: a guaranteed pod is preempted unnecessarily", names(s.Pods))
	}
	for i, h := range s.Pods {
		if !mayPreempt(h.Pod, me.Pod) || mayPreempt(me.Pod, h.Pod) {
			t.Fatalf("%s does not yield", h.Pod.Name)
		}
		if fits(slices.Delete(slices.Clone(s.Pods), i, i+1)) {
			t.Fatalf("%s of %q is preempted unnecessarily", h.Pod.Name, names(s.Pods))
		}
	}
	slices.Reverse(others)
	if again, _ := Preempt(me, others, nil, n); names(again.Pods) != names(s.Pods) {
		t.Fatalf("%q, and in another order %q", names(s.Pods), names(again.Pods))
	}
}
