package status

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
)

// TestMounts checks that the status lists the mounts of each container. For a read-only mount, it says whether the mount is recursively
// read-only.
func TestMounts(t *testing.T) {
	maybe, on := v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", VolumeMounts: []v1.VolumeMount{
		{Name: "rw", MountPath: "/rw"}, {Name: "ro", MountPath: "/ro", ReadOnly: true},
		{Name: "maybe", MountPath: "/maybe", ReadOnly: true, RecursiveReadOnly: &maybe}, {Name: "on", MountPath: "/on", ReadOnly: true, RecursiveReadOnly: &on},
	}}}}}
	for _, can := range []bool{true, false} {
		tree := map[bool]string{true: "Enabled", false: "Disabled"}[can]
		st := Compute(plan.Input{Want: p}, v1.PodStatus{}, Host{ReadOnlyTrees: func(*v1.Pod) bool { return can }})
		got := ""
		for _, m := range st.ContainerStatuses[0].VolumeMounts {
			mode := "-"
			if m.RecursiveReadOnly != nil {
				mode = string(*m.RecursiveReadOnly)
			}
			got += m.Name + " " + m.MountPath + " " + mode + "; "
		}
		if want := "rw /rw -; ro /ro Disabled; maybe /maybe " + tree + "; on /on " + tree + "; "; got != want {
			t.Errorf("got %s, not %s", got, want)
		}
	}
	if st := Compute(plan.Input{Want: p}, v1.PodStatus{}, Host{}); *st.ContainerStatuses[0].VolumeMounts[2].RecursiveReadOnly != v1.RecursiveReadOnlyDisabled {
		t.Error("an unknown runtime has recursive read-only mounts")
	}
}
