package admit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/config"
)

// This helper adds each field that has no effect on this node. It also adds some fields that had no effect in earlier versions.
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

func fields(list []IgnoredField) (out []string) {
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
		if f.Effect == "" {
			t.Errorf("%s: the effect is not described", f.Field)
		}
	}
}

// TestIgnoredAlphaFields checks that emptyDir.mode and the users of volume files are reported as ignored while their feature gates are off.
func TestIgnoredAlphaFields(t *testing.T) {
	mode, user := int32(0o700), int64(7)
	items := []v1.KeyToPath{{Key: "a"}, {Key: "b", User: &user}}
	fields1 := []v1.DownwardAPIVolumeFile{{Path: "a"}, {Path: "b", User: &user}}
	projected := func(p v1.VolumeProjection) v1.VolumeSource {
		return v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{Secret: &v1.SecretProjection{}}, p}}}
	}
	owned := []v1.VolumeSource{
		{ConfigMap: &v1.ConfigMapVolumeSource{DefaultUser: &user}},
		{ConfigMap: &v1.ConfigMapVolumeSource{Items: items}},
		{Secret: &v1.SecretVolumeSource{DefaultUser: &user}},
		{Secret: &v1.SecretVolumeSource{Items: items}},
		{DownwardAPI: &v1.DownwardAPIVolumeSource{DefaultUser: &user}},
		{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields1}},
		{Projected: &v1.ProjectedVolumeSource{DefaultUser: &user}},
		projected(v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{Items: items}}),
		projected(v1.VolumeProjection{Secret: &v1.SecretProjection{Items: items}}),
		projected(v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: fields1}}),
		projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{User: &user}}),
		projected(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{User: &user}}),
		projected(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{User: &user}}),
	}
	plain := []v1.VolumeSource{
		{ConfigMap: &v1.ConfigMapVolumeSource{Items: items[:1]}}, {Secret: &v1.SecretVolumeSource{}}, {DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields1[:1]}},
		projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{}}), {EmptyDir: &v1.EmptyDirVolumeSource{}},
	}
	p := pod("alpha", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Mode: &mode}}}}
		for _, s := range append(owned, plain...) {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{VolumeSource: s})
		}
	})
	want := []string{"spec.volumes[0].emptyDir.mode"}
	for i := range owned {
		want = append(want, fmt.Sprintf("spec.volumes[%d]", i+1))
	}
	if got := fields(IgnoredFields(p, Node{})); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	if got := fields(IgnoredFields(p, Node{Alpha: []string{config.GateFileOwners}})); !slices.Equal(got, want[:1]) {
		t.Errorf("%q", got)
	}
	if got := fields(IgnoredFields(p, Node{Alpha: []string{config.GateEmptyDirMode}})); !slices.Equal(got, want[1:]) {
		t.Errorf("%q", got)
	}
}

// TestIgnoredLevel checks that a node without SELinux accepts an SELinux level and reports it as ignored.
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
	one := []IgnoredField{{"spec.a", "is not run"}, {"spec.b", "is not enforced"}}
	if got := DescribeIgnored(one); got != "This node accepts fields that do not act: spec.a is not run; spec.b is not enforced" {
		t.Errorf("got %q", got)
	}
	if got := DescribeIgnored(slices.Repeat(one, 100)); len(got) > 1024 || !strings.Contains(got, "more") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}
