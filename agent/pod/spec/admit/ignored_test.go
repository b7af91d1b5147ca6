package admit

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// everything has each field that a pod may have without that it acts, and some that once did not.
func everything(p *v1.Pod) {
	hook := &v1.LifecycleHandler{}
	always := v1.ContainerRestartPolicyAlways
	p.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: &always, Lifecycle: &v1.Lifecycle{PostStart: hook}}}
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{
		Name: "all", Lifecycle: &v1.Lifecycle{PostStart: hook, PreStop: hook},
		Resources:          v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("1")}},
		ResizePolicy:       []v1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: v1.NotRequired}, {ResourceName: "memory", RestartPolicy: v1.RestartContainer}},
		RestartPolicyRules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart}, {Action: v1.ContainerRestartRuleActionRestartAllContainers}},
	})
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{}}
	limit := resource.MustParse("1Mi")
	empty := func(medium v1.StorageMedium, limit *resource.Quantity) v1.Volume {
		return v1.Volume{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium, SizeLimit: limit}}}
	}
	p.Spec.Volumes = []v1.Volume{{}, empty("", nil), empty("", &limit), empty(v1.StorageMediumMemory, &limit)}
}

func fields(list []Ignored) (out []string) {
	for _, f := range list {
		out = append(out, f.Field)
	}
	return out
}

func TestIgnoredFields(t *testing.T) {
	if got := IgnoredFields(pod("plain", onPort(80, "", ""), asks("cpu", "1")), Node{}); len(got) > 0 {
		t.Errorf("a plain pod: %v", got)
	}
	probed := func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = &v1.Probe{}, &v1.Probe{}, &v1.Probe{}
	}
	if got := IgnoredFields(pod("probed", probed), Node{}); len(got) > 0 {
		t.Errorf("probes act: %v", got)
	}
	stop := v1.SIGTERM
	if got := IgnoredFields(pod("stop", func(p *v1.Pod) { p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{StopSignal: &stop} }), Node{}); len(got) > 0 {
		t.Errorf("a stop signal acts: %v", got)
	}
	got := IgnoredFields(pod("all", everything), Node{})
	if want := []string{
		"spec.containers[1].resources.limits[ephemeral-storage]", "spec.volumes[2].emptyDir.sizeLimit",
	}; !slices.Equal(fields(got), want) {
		t.Errorf("got  %q\nwant %q", fields(got), want)
	}
	if got := IgnoredFields(pod("all", everything), Node{Limits: true}); len(got) > 0 {
		t.Errorf("where limits count: %v", got)
	}
	for _, f := range got {
		if f.Instead == "" {
			t.Errorf("%s: what happens instead?", f.Field)
		}
	}
}

// A level is taken where it separates nothing, and reported.
func TestIgnoredLevel(t *testing.T) {
	off := Node{SELinux: errors.New("off")}
	own, shared := asks("cpu", "0"), func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1,c2"}}
	}
	for name, c := range map[string]struct {
		pod  *v1.Pod
		node Node
		want []string
	}{
		"of the pod":               {pod("a", own, shared), off, []string{"spec.containers[0].securityContext.seLinuxOptions.level"}},
		"enforced":                 {pod("a", own, shared), Node{}, nil},
		"a type, which is refused": {pod("a", labelled("container_t")), off, nil},
	} {
		if got := fields(IgnoredFields(c.pod, c.node)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestSentence(t *testing.T) {
	one := []Ignored{{"spec.a", "is not run"}, {"spec.b", "is not enforced"}}
	if got := Sentence(one); got != "This node accepts fields that do not act: spec.a is not run; spec.b is not enforced" {
		t.Errorf("got %q", got)
	}
	if got := Sentence(slices.Repeat(one, 100)); len(got) > 1024 || !strings.Contains(got, "more") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
