package devicemanager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/agent/device/topology"
)

// A chooser is a fake Provider with functions for its calls.
type chooser struct {
	offered  []string
	prefer   func(Choice) []string
	allocate func(Request)
	fail     error
}

func (c *chooser) PreferredDevices(_ context.Context, ch Choice) ([]string, error) {
	c.offered = append(c.offered, ch.Container.Name+" "+strings.Join(ch.Available, ","))
	return c.prefer(ch), nil
}

func (c *chooser) Allocate(_ context.Context, r Request) (Allocation, error) {
	if c.allocate != nil {
		c.allocate(r)
	}
	return Allocation{Env: map[string]string{"THING": strings.Join(r.IDs, ",")}}, c.fail
}

// TestPreferred checks that a provider chooses for each container among all devices that are left, although the devices of all containers
// are reserved before its first call. Devices of init containers are still reused.
func TestPreferred(t *testing.T) {
	for _, tt := range []struct {
		counts  []string
		prefers string // in this order
		offered string
		want    string
	}{
		{[]string{"2", "2"}, "c d a b", "c0 a,b,c,d", "c0=c,d c1=a,b"},
		{[]string{"2", "1"}, "d a b c", "c0 a,b,c,d; c1 b,c", "c0=a,d c1=b"},
		{[]string{"1", "1", "1"}, "d c b a", "c0 a,b,c,d; c1 a,b,c; c2 a,b", "c0=d c1=c c2=b"},
		{[]string{"2", "|", "2"}, "d c b a", "c0 a,b,c,d", "c0=c,d c2=c,d"},
		{[]string{"1", "|", "2"}, "c d a b", "c0 a,b,c,d; c2 a,b,c,d", "c0=c c2=c,d"},
		{[]string{"2", "1s", "|", "2"}, "d c b a", "c0 a,b,c,d; c3 a,b,d", "c0=c,d c1=c c3=b,d"},
		{[]string{"2", "|", "1", "1"}, "d c b a", "c0 a,b,c,d", "c0=c,d c2=c c3=d"},
	} {
		w := newWorld(t)
		c := &chooser{prefer: func(Choice) []string { return strings.Fields(tt.prefers) }}
		w.connect(c, "a", "b", "c", "d")
		p := w.pod("pod", tt.counts...)
		w.admit(p, "")
		if got := w.grantedIDs(p); got != tt.want {
			t.Errorf("%v: devices %q, not %q", tt.counts, got, tt.want)
		}
		if got := strings.Join(c.offered, "; "); got != tt.offered {
			t.Errorf("%v: offered %q, not %q", tt.counts, got, tt.offered)
		}
		for _, h := range w.Holdings() {
			if got := w.rowsOf(p.UID, h.Container)[thing].Allocation.Env["THING"]; got != strings.Join(h.IDs, ",") {
				t.Errorf("%v: container %s has the allocation of %s", tt.counts, h.Container, got)
			}
		}
	}
}

// TestPreferredNodes checks that a preference does not change the NUMA nodes for which other resources of later containers are reserved.
func TestPreferredNodes(t *testing.T) {
	w := newWorld(t)
	c := &chooser{prefer: func(Choice) []string { return []string{"c", "d", "b", "a"} }}
	var all []Device
	for i, id := range []string{"a", "b", "c", "d"} {
		all = append(all, Device{ID: id, Healthy: true, NUMA: []int64{int64(i / 2)}})
	}
	if err := w.connect(c).Devices(all); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		at   [2]uint64 // NUMA nodes of the two containers, as bits
		want string
	}{
		{[2]uint64{3, 3}, "c0=c c2=c,d"}, // the same nodes: the provider chooses
		{[2]uint64{3, 1}, "c0=a c2=a,b"}, // the second container needs node 0
		{[2]uint64{2, 2}, "c0=c c2=c,d"},
	} {
		p := w.pod("pod", "1", "|", "2")
		g, err := w.BeginAllocation(p)
		if err != nil {
			t.Fatal(err)
		}
		for i, ctr := range []*v1.Container{&p.Spec.InitContainers[0], &p.Spec.Containers[0]} {
			if err := g.Reserve(ctr, topology.Mask(tt.at[i])); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.End(t.Context(), g.Allocate(t.Context()), nil); err != nil {
			t.Fatal(err)
		}
		if got := w.grantedIDs(p); got != tt.want {
			t.Errorf("%v: devices %q, not %q", tt.at, got, tt.want)
		}
		if err := w.Release(t.Context(), p.UID); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChangedDuringAllocate checks that devices that become unhealthy between their reservation and the call of the provider are replaced,
// and that the pod is rejected if there are no others.
func TestChangedDuringAllocate(t *testing.T) {
	for lost, want := range map[string]string{"b": "c0=a c1=c", "a": "c0=a c1=b", "b c": ""} {
		w := newWorld(t)
		c := &chooser{prefer: func(Choice) []string { return nil }}
		l := w.connect(c, "a", "b", "c")
		c.allocate = func(Request) {
			now := healthy("a", "b", "c")
			for i := range now {
				now[i].Healthy = !slices.Contains(strings.Fields(lost), now[i].ID)
			}
			if err := l.Devices(now); err != nil {
				t.Error(err)
			}
		}
		p := w.pod("pod", "1", "1")
		refusal := ""
		if want == "" {
			refusal = "requested number of devices unavailable"
		}
		w.admit(p, refusal)
		if got := w.grantedIDs(p); got != want || want == "" && len(w.grants) != 0 {
			t.Errorf("without %s: devices %q, not %q; %v", lost, got, want, w.grants)
		}
	}
}

// TestTakenDuringChoice checks that a preferred device that another pod got in the meantime is not given twice, and that a pod cannot get
// devices that are reserved for another.
func TestTakenDuringChoice(t *testing.T) {
	w := newWorld(t)
	c := &chooser{}
	w.connect(c, "a", "b", "c")
	other := w.pod("other", "1")
	c.prefer = func(ch Choice) []string {
		if ch.Pod.Name == "pod" {
			w.admit(other, "")
			if reason, _, err := w.Admit(t.Context(), w.pod("late", "1")); !IsUndecided(err) || reason != "" {
				t.Errorf("refused for devices that another pod may not get: %q %v", reason, err)
			}
		}
		return []string{"c"}
	}
	p := w.pod("pod", "1", "1")
	c.allocate = func(r Request) {
		if r.Pod.Name == "pod" {
			if err := w.Prepare(t.Context(), p); err != nil {
				t.Errorf("a pod that lacks nothing is not prepared: %v", err)
			}
			if err := w.Start(t.Context(), p, r.Container); err == nil {
				t.Error("a container starts before its devices are allocated")
			}
		}
	}
	w.admit(p, "")
	if got := w.grantedIDs(p) + " " + w.grantedIDs(other); got != "c0=a c1=b c0=c" {
		t.Errorf("devices %q", got)
	}
}

// TestPreparedTwice checks that a pod cannot get devices while an earlier allocation to it has not ended, and that the error does not
// reject the pod.
func TestPreparedTwice(t *testing.T) {
	w := newWorld(t)
	c := &chooser{prefer: func(Choice) []string { return nil }}
	w.connect(c, "a")
	p := w.pod("pod", "1")
	c.allocate = func(Request) {
		c.allocate = nil
		l, err := w.Connect(t.Context(), "example.com/unknown", c)
		if err == nil {
			err = l.Devices(healthy("u"))
		}
		if err != nil {
			t.Fatal(err)
		}
		if reason, _, err := w.Admit(t.Context(), p); err == nil || reason != "" {
			t.Errorf("two allocations to one pod: %q %v", reason, err)
		}
	}
	w.admit(p, "")
	if err := w.Prepare(t.Context(), p); err != nil || len(w.Holdings()) != 2 {
		t.Errorf("%v: %v", err, w.Holdings())
	}
}

// TestShortOfReserved checks that a pod is not rejected if it lacks only devices that are reserved for another pod. The pod gets the
// devices if the other allocation fails or panics. It is rejected if these devices would not be enough.
func TestShortOfReserved(t *testing.T) {
	const other = "example.com/unknown"
	for _, tt := range []struct {
		lacks  string // number of devices of the second resource that the pod requests
		panics bool
	}{{"1", false}, {"1", true}, {"2", false}} {
		w := newWorld(t)
		c := &chooser{prefer: func(Choice) []string { return nil }, fail: errors.New("it burns")}
		w.connect(c, "a", "b")
		l, err := w.Connect(t.Context(), other, c)
		if err == nil {
			err = l.Devices(healthy("u"))
		}
		if err != nil {
			t.Fatal(err)
		}
		short := w.pod("short", "1")
		short.Spec.Containers[0].Resources.Limits[other] = resource.MustParse(tt.lacks)
		c.allocate = func(Request) {
			reason, _, err := w.Admit(t.Context(), short)
			if refused := tt.lacks == "2"; (reason != "") != refused || IsUndecided(err) == refused {
				t.Errorf("lacking %s: %q %v", tt.lacks, reason, err)
			}
			if tt.panics {
				panic(c.fail)
			}
		}
		p := w.pod("pod", "1")
		func() {
			defer func() { _ = recover() }()
			if err := w.Prepare(t.Context(), p); !errors.Is(err, c.fail) {
				t.Error(err)
			}
		}()
		if len(w.grants) != 0 {
			t.Errorf("left are %v", w.grants)
		}
		c.allocate, c.fail = nil, nil
		if tt.lacks == "1" {
			w.admit(short, "")
			w.admit(p, "requested number of devices unavailable")
		}
	}
}
