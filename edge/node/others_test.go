package node

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWhatOthersWrite checks that the node keeps extended resources, addresses and conditions that other programs have written to its Node
// object. Reports, a restart and a reboot must not remove them.
func TestWhatOthersWrite(t *testing.T) {
	in(t, nil, func(w *world) {
		time.Sleep(time.Minute)
		n := w.node()
		n.Status.Capacity["example.com/dongle"] = resource.MustParse("4")
		n.Status.Capacity["hugepages-2Mi"] = resource.MustParse("4Mi") // a native resource, which only the node reports
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: "NetworkUnavailable",
			Status: v1.ConditionFalse, Reason: "FlannelIsUp"})
		w.Put(n)
		look := func(when string) {
			t.Helper()
			st := w.node().Status
			for name, list := range map[string]v1.ResourceList{"capacity": st.Capacity, "allocatable": st.Allocatable} {
				if q := list["example.com/dongle"]; q.Value() != 4 {
					t.Errorf("%s: %s has %v", when, name, list)
				}
				if q := list["hugepages-2Mi"]; !q.IsZero() {
					t.Errorf("%s: %s has %v", when, name, list)
				}
			}
			if w.condition("NetworkUnavailable").Reason != "FlannelIsUp" || w.condition(v1.NodeReady).Status != v1.ConditionTrue {
				t.Errorf("%s: conditions %+v", when, st.Conditions)
			}
		}
		time.Sleep(time.Minute)
		look("told")
		w.are(func(f *Facts) { f.Capacity = v1.ResourceList{"cpu": resource.MustParse("4")}; f.MemoryPressure = true })
		time.Sleep(time.Minute)
		look("after a change of ours")
		w.end()
		w.start()
		time.Sleep(6 * time.Minute)
		look("after a restart")
		if q := w.LastKnown().Status.Capacity["example.com/dongle"]; q.Value() != 4 || len(w.LastKnown().Status.Capacity) != 1 {
			t.Errorf("the node's capacity has %v of other programs", w.LastKnown().Status.Capacity)
		}
		n = w.node()
		delete(n.Status.Capacity, "example.com/dongle")
		w.Put(n)
		before := w.changed.Load()
		time.Sleep(time.Minute)
		if len(w.LastKnown().Status.Capacity) != 0 || w.changed.Load() == before {
			t.Errorf("still in the capacity after the removal: %v", w.LastKnown().Status.Capacity)
		}
		if st := w.node().Status; st.Allocatable.Name("example.com/dongle", resource.DecimalSI).Value() != 0 {
			t.Errorf("still allocatable after the removal: %v", st.Allocatable)
		}
	})
}

// TestKeptAnnotations checks that the Node object has a kept annotation after the registration. The annotation must be restored when
// another program has changed or removed it. It must be removed when it is no longer kept.
func TestKeptAnnotations(t *testing.T) {
	const key = "example.com/provided"
	var changes []func(*Config)
	in(t, func(c *Config) {
		c.KeptAnnotations = map[string]string{key: "10.0.0.2"}
		for _, change := range changes {
			change(c)
		}
	}, func(w *world) {
		look := func(when, want string) {
			t.Helper()
			time.Sleep(time.Minute)
			if got, found := w.node().Annotations[key]; got != want || found != (want != "") {
				t.Errorf("%s: %q", when, got)
			}
		}
		look("registered", "10.0.0.2")
		requests := w.Requests("PATCH nodes")
		n := w.node()
		n.Annotations = map[string]string{"theirs": "1"}
		w.Put(n)
		look("taken away", "10.0.0.2")
		if more := w.Requests("PATCH nodes") - requests; more > 1 {
			t.Errorf("%d patches", more)
		}
		n = w.node()
		n.Annotations[key] = "10.9.9.9"
		w.Put(n)
		look("changed", "10.0.0.2")
		changes = append(changes, func(c *Config) { c.KeptAnnotations = map[string]string{key: ""} })
		w.end()
		w.start()
		look("no longer wanted", "")
		if w.node().Annotations["theirs"] != "1" {
			t.Errorf("others' annotations: %v", w.node().Annotations)
		}
	})
}

// TestCloudAddresses checks that a node with an external cloud provider reports addresses only if the Node has no addresses.
func TestCloudAddresses(t *testing.T) {
	in(t, func(c *Config) { c.CloudAddresses = true }, func(w *world) {
		time.Sleep(time.Minute)
		if got := w.node().Status.Addresses; len(got) != 2 || got[0].Address != "10.0.0.2" {
			t.Errorf("registered with %v", got)
		}
		n := w.node()
		n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "203.0.113.9"},
			{Type: v1.NodeInternalIP, Address: "10.9.0.1"}}
		w.Put(n)
		w.are(func(f *Facts) { f.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.3"}} })
		time.Sleep(6 * time.Minute)
		w.end()
		w.start()
		time.Sleep(6 * time.Minute)
		if got := w.node().Status.Addresses; len(got) != 2 || got[0].Address != "203.0.113.9" || got[1].Address != "10.9.0.1" {
			t.Errorf("the provider's addresses became %v", got)
		}
	})
}

// TestFormerInstallation checks that a node with a new store sets the extended resources of an existing Node to zero, because the devices
// of a former installation with the same name may be gone. The agent must never see the former amounts. Amounts that other programs write
// after that stay, also after a restart.
func TestFormerInstallation(t *testing.T) {
	const dongle, batch = "example.com/dongle", "kubernetes.io/batch-cpu" // the latter is not an extended resource for Kubernetes
	w := prepare(t)
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	n.Status.Capacity = v1.ResourceList{dongle: resource.MustParse("4"), batch: resource.MustParse("2")}
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	w.Put(n)
	reported := make(chan v1.ResourceList, 100)
	w.cfg = func(c *Config) {
		c.Changed = func(n *v1.Node) { reported <- n.Status.Capacity }
		c.Reported = func(capacity v1.ResourceList) { reported <- capacity }
	}
	has := func(when string, list v1.ResourceList, want int64) {
		t.Helper()
		if q, found := list[dongle]; !found || q.Value() != want {
			t.Errorf("%s: %v, not %d", when, list, want)
		}
	}
	w.start()
	for range 2 { // Changed and Reported
		has("first session", <-reported, 0)
	}
	st := w.node().Status
	has("capacity", st.Capacity, 0)
	has("allocatable", st.Allocatable, 0)
	if q := st.Allocatable[batch]; q.Value() != 2 {
		t.Errorf("allocatable has %v", st.Allocatable)
	}
	n = w.node()
	n.Status.Capacity[dongle] = resource.MustParse("3")
	w.Put(n)
	w.Poke()
	for list := range reported {
		if q := list[dongle]; !q.IsZero() {
			has("written by another program", list, 3)
			break
		}
	}
	w.end()
	for len(reported) > 0 {
		<-reported
	}
	w.start()
	defer func() { w.end() }()
	for range 2 {
		has("after a restart", <-reported, 3)
	}
}
