package manifest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestAddEphemeral checks that an ephemeral container gets its defaults, that its mistakes are rejected, and that the given pod does not
// change.
func TestAddEphemeral(t *testing.T) {
	pod := &v1.Pod{}
	pod.Spec.Containers = []v1.Container{{Name: "app", Image: "x:1"}}
	pod.Spec.InitContainers = []v1.Container{{Name: "first", Image: "x:1"}}
	debug := func(name, image, target string) v1.EphemeralContainer {
		return v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: image}, TargetContainerName: target}
	}
	got, err := AddEphemeral(pod, debug("d", "busybox:1", "app"))
	if err != nil || len(pod.Spec.EphemeralContainers) != 0 {
		t.Fatal(err)
	}
	if c := got.Spec.EphemeralContainers; len(c) != 1 || c[0].ImagePullPolicy != v1.PullIfNotPresent || c[0].TerminationMessagePath == "" ||
		c[0].TargetContainerName != "app" {
		t.Errorf("%+v", c)
	}
	for _, bad := range []struct {
		c    v1.EphemeralContainer
		want string
	}{
		{debug("app", "x:1", ""), "name: Duplicate"}, {debug("Not_A_Name", "x:1", ""), "name: Invalid"}, {debug("", "x:1", ""), "name: Required"},
		{debug("e", "", ""), "image: Required"}, {debug("e", " x", ""), "white space"}, {debug("e", "x:1", "none"), "must be a container"},
		{debug("e", "x:1", "first"), "must be a container"},
	} {
		if _, err := AddEphemeral(got, bad.c); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%+v: %v", bad.c, err)
		}
	}
	for i := 1; i < maxEphemeral; i++ {
		if got, err = AddEphemeral(got, debug("d"+strings.Repeat("x", i), "x:1", "")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := AddEphemeral(got, debug("more", "x:1", "")); err == nil {
		t.Error("the number of ephemeral containers is not bounded")
	}
}
