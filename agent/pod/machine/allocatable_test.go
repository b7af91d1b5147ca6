package machine

import (
	"context"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/config"
)

// ownDevices are the devices of this node.
type ownDevices v1.ResourceList

func (d ownDevices) Resources() (capacity, allocatable v1.ResourceList) {
	return maps.Clone(v1.ResourceList(d)), maps.Clone(v1.ResourceList(d))
}

func (d ownDevices) RemoveManaged(v1.ResourceList) {}

func TestAllocatable(t *testing.T) {
	for args, want := range map[string]int64{"--max-pods=7": 7, "--pods-per-core=1000000": 110} {
		cfg, _, err := config.Load([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), args})
		if err != nil {
			t.Fatal(err)
		}
		has, err := inspectMachine(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		room := has.Capacity
		if room.Pods().Value() != want || room.Cpu().Value() < 1 || room.Memory().Value() < 1<<20 || room.StorageEphemeral().Value() < 1<<20 {
			t.Errorf("%s: got %v", args, room)
		}
		if f := room.StorageEphemeral().Format; f != resource.DecimalSI { // the format is that of the allocatable
			t.Errorf("ephemeral storage is in %s", f)
		}
	}
}

// TestOthersResources checks that admission uses the resources that other components advertise on the Node. These resources do not replace
// the machine's native resources.
func TestOthersResources(t *testing.T) {
	cfg, _, err := config.Load([]string{"--hostname-override=n", "--state-dir=" + t.TempDir(), "--node-ip=10.0.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(t.Context(), cfg, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	reported := v1.ResourceList{"example.com/foo": resource.MustParse("4"), v1.ResourceCPU: resource.MustParse("1k")}
	if !m.SetNode(m.Labels(), nil, reported) || m.SetNode(m.Labels(), nil, reported) {
		t.Error("a change is not reported exactly once")
	}
	if room := m.Admit().Allocatable; room.Name("example.com/foo", resource.DecimalSI).Value() != 4 || room.Cpu().Value() >= 1000 {
		t.Errorf("allocatable %v", room)
	}
	m.SetDevices(ownDevices{"example.com/camera": resource.MustParse("2"), "example.com/foo": resource.MustParse("1")})
	if got, want := m.Extended(), (map[string]int64{"example.com/camera": 2, "example.com/foo": 1}); !maps.Equal(got, want) {
		t.Errorf("extended resources %v, want %v", got, want)
	}
	m.SetDevices(nil)
	if got := m.Extended(); len(got) != 1 || got["example.com/foo"] != 4 {
		t.Errorf("extended resources %v", got)
	}
	if _, kept := m.Now().Allocatable["example.com/foo"]; kept {
		t.Error("the machine's own resources were changed")
	}
	if !m.SetNode(m.Labels(), nil, nil) {
		t.Error("the removal of the resource is not reported")
	}
	if _, there := m.Admit().Allocatable["example.com/foo"]; there {
		t.Error("the resource is still allocatable")
	}
}
