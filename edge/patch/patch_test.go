package patch_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/islet-edge/islet/edge/patch"
)

// apply patches an object as the API server does.
func apply[T any](t *testing.T, object T, data []byte) (out T) {
	t.Helper()
	before, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	after, err := strategicpatch.StrategicMergePatch(before, data, object)
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if err := json.Unmarshal(after, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSmall(t *testing.T) {
	old := v1.PodStatus{Phase: v1.PodPending, PodIPs: []v1.PodIP{{IP: "1"}},
		Conditions: []v1.PodCondition{{Type: "a", Status: "True", Reason: "x"}, {Type: "b", Status: "False"}, {Type: "c"}}}
	now := v1.PodStatus{Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: "2"}},
		Conditions: []v1.PodCondition{{Type: "a", Status: "False"}, {Type: "b", Status: "False"}}}
	data, err := patch.Status("u", old, now)
	want := `{"metadata":{"uid":"u"},"status":{"conditions":[{"reason":null,"status":"False","type":"a"},{"$patch":"delete","type":"c"}],` +
		`"phase":"Running","podIPs":[{"ip":"2"},{"$patch":"replace"}]}}`
	if err != nil || string(data) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, data, want)
	}
	if data, err := patch.Status("u", now, now); data != nil || err != nil {
		t.Error(string(data), err)
	}
}

type dice struct{ *rand.Rand }

func (d dice) word() string { return []string{"", "x", "y", "z"}[d.IntN(4)] }

func (d dice) at() metav1.Time {
	if d.IntN(3) == 0 {
		return metav1.Time{}
	}
	return metav1.NewTime(time.Unix(int64(d.IntN(3))*100, 0))
}

func (d dice) pod() (st v1.PodStatus) {
	st.Phase, st.Reason, st.PodIP = v1.PodPhase(d.word()), d.word(), d.word()
	if at := d.at(); !at.IsZero() {
		st.StartTime = &at
	}
	for _, kind := range []v1.PodConditionType{"a", "b", "c"} {
		if d.IntN(3) > 0 {
			st.Conditions = append(st.Conditions, v1.PodCondition{Type: kind, Status: v1.ConditionStatus(d.word()),
				Message: d.word(), LastTransitionTime: d.at(), LastProbeTime: d.at()})
		}
	}
	for _, ip := range []string{"1", "2", "3"} {
		if d.IntN(2) == 0 {
			st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
		}
		if d.IntN(2) == 0 {
			st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
		}
	}
	for range d.IntN(3) {
		started := d.IntN(2) == 0
		c := v1.ContainerStatus{Name: d.word(), Image: d.word(), Ready: d.IntN(2) == 0, Started: &started}
		switch d.IntN(3) {
		case 0:
			c.State.Running = &v1.ContainerStateRunning{StartedAt: d.at()}
		case 1:
			c.State.Waiting = &v1.ContainerStateWaiting{Reason: d.word()}
		}
		st.ContainerStatuses = append(st.ContainerStatuses, c)
	}
	return st
}

func (d dice) node() (st v1.NodeStatus) {
	amount := func(list *v1.ResourceList) {
		for _, name := range []v1.ResourceName{"cpu", "memory", "x"} {
			if d.IntN(2) == 0 {
				if *list == nil {
					*list = v1.ResourceList{}
				}
				(*list)[name] = resource.MustParse([]string{"1", "2"}[d.IntN(2)])
			}
		}
	}
	amount(&st.Capacity)
	amount(&st.Allocatable)
	for _, kind := range []v1.NodeAddressType{"InternalIP", "Hostname"} { // for other types the API server would set these fields
		for range d.IntN(3) {
			st.Addresses = append(st.Addresses, v1.NodeAddress{Type: kind, Address: d.word()})
		}
	}
	for _, kind := range []v1.NodeConditionType{"a", "b"} {
		if d.IntN(3) > 0 {
			st.Conditions = append(st.Conditions, v1.NodeCondition{Type: kind, Status: v1.ConditionStatus(d.word()),
				LastHeartbeatTime: d.at()})
		}
	}
	st.NodeInfo.KernelVersion, st.DaemonEndpoints.KubeletEndpoint.Port = d.word(), int32(d.IntN(3))
	for range d.IntN(3) {
		st.Images = append(st.Images, v1.ContainerImage{Names: []string{d.word()}, SizeBytes: d.Int64()})
	}
	return st
}

// TestPatchesLead checks that a patch results in the intended status. The patch is applied by the rules of the API server.
func TestPatchesLead(t *testing.T) {
	d := dice{rand.New(rand.NewPCG(1, 2))}
	same := []cmp.Option{
		cmpopts.EquateEmpty(),
		cmpopts.SortSlices(func(a, b v1.PodCondition) bool { return a.Type < b.Type }),
		cmpopts.SortSlices(func(a, b v1.NodeCondition) bool { return a.Type < b.Type }),
	}
	rounds := 600
	if os.Getenv("ISLET_TEST_LONG") != "" {
		rounds = 6000
	}
	for range rounds {
		old, now := v1.Pod{Status: d.pod()}, d.pod()
		data, err := patch.Status(types.UID(""), old.Status, now)
		if err != nil {
			t.Fatal(err)
		}
		if data == nil {
			data = []byte("{}")
		}
		if diff := cmp.Diff(now, apply(t, old, data).Status, same...); diff != "" {
			t.Fatalf("%s\n%s", data, diff)
		}
		node, next := v1.Node{Status: d.node()}, d.node()
		if data, err = patch.Status("", node.Status, next); err != nil {
			t.Fatal(err)
		}
		if data == nil {
			data = []byte("{}")
		}
		if diff := cmp.Diff(next, apply(t, node, data).Status, same...); diff != "" {
			t.Fatalf("%s\n%s", data, diff)
		}
	}
}
