package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

func (t Threshold) text() string {
	show := func(v Value) string {
		if v.Quantity != nil {
			return v.Quantity.String()
		}
		return fmt.Sprintf("%g%%", v.Part*100)
	}
	s := fmt.Sprintf("%s<%s", t.Signal, show(t.Value))
	if t.Soft {
		s += " for " + t.Grace.String()
	}
	if t.Reclaim.Quantity != nil || t.Reclaim.Part > 0 {
		s += " +" + show(t.Reclaim)
	}
	return s
}

func texts(list []Threshold) string {
	var all []string
	for _, t := range list {
		all = append(all, t.text())
	}
	return strings.Join(all, "; ")
}

func TestParse(t *testing.T) {
	pods := []string{"pods"}
	for name, c := range map[string]struct {
		k    kubelet.KubeletConfiguration
		want string
	}{
		"none": {kubelet.KubeletConfiguration{EnforceNodeAllocatable: pods}, ""},
		"the defaults of a kubelet": {kubelet.KubeletConfiguration{EnforceNodeAllocatable: pods, EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
			"imagefs.available": "15%", "imagefs.inodesFree": "5%"}},
			"memory.available<100Mi; allocatableMemory.available<100Mi; nodefs.available<10%; nodefs.inodesFree<5%; imagefs.available<15%; imagefs.inodesFree<5%"},
		"pods are not kept together": {
			kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "100Mi"}},
			"memory.available<100Mi",
		},
		"pods have one of their own": {kubelet.KubeletConfiguration{
			EnforceNodeAllocatable: pods,
			EvictionHard:           map[string]string{"memory.available": "100Mi", "allocatableMemory.available": "7Mi"},
		},
			"memory.available<100Mi; allocatableMemory.available<7Mi"},
		"hard before soft": {kubelet.KubeletConfiguration{EvictionHard: map[string]string{"pid.available": "10%", "memory.available": "5%"},
			EvictionSoft:            map[string]string{"memory.available": "10%"},
			EvictionSoftGracePeriod: map[string]string{"memory.available": "1m30s"},
			EvictionMinimumReclaim:  map[string]string{"memory.available": "0", "pid.available": "5%"}},
			"memory.available<5% +0; memory.available<10% for 1m30s +0; pid.available<10% +5%"},
		"switched off": {
			kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "0%", "nodefs.available": "100%"}},
			"",
		},
		"no signal": {
			kubelet.KubeletConfiguration{EvictionHard: map[string]string{"cpu.available": "5%"}},
			`evictionHard: unknown eviction signal "cpu.available"`,
		},
		"no quantity": {
			kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "lots"}},
			`evictionHard[memory.available]: "lots" is not a quantity`,
		},
		"negative": {
			kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "-1"}},
			`evictionHard[memory.available]: "-1" is not a quantity`,
		},
		"too much": {
			kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "101%"}},
			`evictionHard[memory.available]: "101%" is not a percentage`,
		},
		"not a number": {
			kubelet.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "NaN%"}},
			`evictionHard[memory.available]: "NaN%" is not a percentage`,
		},
		"no time": {
			kubelet.KubeletConfiguration{EvictionSoft: map[string]string{"memory.available": "1Mi"}},
			`evictionSoftGracePeriod[memory.available]: "" is not a valid duration`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := Parse(&c.k)
			got := texts(list)
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestContainerFs(t *testing.T) {
	list, err := Parse(&kubelet.KubeletConfiguration{
		EvictionHard: map[string]string{
			"nodefs.available": "1%", "nodefs.inodesFree": "2%", "imagefs.available": "3%",
			"containerfs.available": "9%", "containerfs.inodesFree": "9%",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := texts(withContainerFs(list, true)),
		"nodefs.available<1%; nodefs.inodesFree<2%; imagefs.available<3%; containerfs.available<1%; containerfs.inodesFree<2%"; got != want {
		t.Errorf("on the node's disk: %s", got)
	}
	if got, want := texts(withContainerFs(list, false)),
		"nodefs.available<1%; nodefs.inodesFree<2%; imagefs.available<3%; containerfs.available<3%"; got != want {
		t.Errorf("on the images' disk: %s", got)
	}
	if got := texts(list); !strings.Contains(got, "containerfs.available<9%") {
		t.Errorf("the list was changed: %s", got)
	}
}

// FuzzParse checks that the thresholds of a random configuration can be compared with random measurements.
func FuzzParse(f *testing.F) {
	f.Add("memory.available", "100Mi", "5%", "30s", uint64(1<<30), uint64(1<<29))
	f.Add("nodefs.inodesFree", "99.99999%", "1e30", "0s", uint64(1<<63), uint64(0))
	f.Fuzz(func(t *testing.T, signal, v, reclaim, grace string, total, free uint64) {
		one := func(s string) map[string]string { return map[string]string{signal: s} }
		list, err := Parse(&kubelet.KubeletConfiguration{
			EnforceNodeAllocatable: []string{"pods"}, EvictionHard: one(v), EvictionSoft: one(v),
			EvictionMinimumReclaim: one(reclaim), EvictionSoftGracePeriod: one(grace),
		})
		if err != nil {
			return
		}
		for _, th := range list {
			if signalIndex(th.Signal) < 0 || th.Grace < 0 || th.Value.Part < 0 || th.Value.Part > 1 ||
				th.Value.Quantity != nil && th.Value.Quantity.Cmp(resource.Quantity{}) < 0 {
				t.Errorf("%+v", th)
			}
			th.Value.quantity(total)
		}
		var s State
		o := Observations{Signal(signal): {Free: free, Total: total}}
		v1 := s.Evaluate(list, o, time.Minute, t0)
		if v2 := s.Evaluate(list, o, time.Minute, t0); len(v1.Conditions) > len(v2.Conditions) || len(v1.Act) > len(v2.Act) {
			t.Errorf("first %+v, then %+v", v1, v2)
		}
		if p := nextLook(list, o, UseEvents); p < minInterval || p > maxInterval {
			t.Errorf("pause %v", p)
		}
	})
}
