package podspec_test

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// TestContainers checks that containers of every kind are returned in order, as pointers into the spec. The iteration can be stopped.
func TestContainers(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	spec := v1.PodSpec{
		InitContainers:      []v1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}},
		Containers:          []v1.Container{{Name: "a"}, {Name: "b"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}}},
	}
	var got []string
	for kind, c := range podspec.Containers(&spec) {
		got = append(got, fmt.Sprint(c.Name, kind))
		c.Image = c.Name + ":1"
	}
	if want := []string{"i0", "s1", "a2", "b2", "e3"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if spec.InitContainers[1].Image != "s:1" || spec.Containers[0].Image != "a:1" || spec.EphemeralContainers[0].Image != "e:1" {
		t.Errorf("the spec was not changed in place: %+v", spec)
	}
	for _, name := range []string{"i", "s", "a", "b", "e"} {
		if _, c := podspec.Find(&spec, name); c == nil || c.Name != name {
			t.Errorf("%s: found %+v", name, c)
		}
	}
	if _, c := podspec.Find(&spec, "none"); c != nil {
		t.Errorf("found %+v", c)
	}
}

// TestStatuses checks that statuses are returned in order, as pointers into the status. The iteration can be stopped.
func TestStatuses(t *testing.T) {
	st := v1.PodStatus{
		InitContainerStatuses: []v1.ContainerStatus{{Name: "i"}}, ContainerStatuses: []v1.ContainerStatus{{Name: "a"}},
		EphemeralContainerStatuses: []v1.ContainerStatus{{Name: "e"}},
	}
	var got string
	for s := range podspec.Statuses(&st) {
		got += s.Name
	}
	if got != "iae" {
		t.Error(got)
	}
	for s := range podspec.Statuses(&st) {
		if s.Name != "i" {
			t.Errorf("went on to %s", s.Name)
		}
		break
	}
}
