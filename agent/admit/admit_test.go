package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func pod(uid string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{}
	p.Name, p.Namespace, p.UID = uid, "default", types.UID(uid)
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	for _, f := range change {
		f(p)
	}
	return p
}

func onPort(number int32, protocol v1.Protocol, ip string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{HostPort: number, Protocol: protocol, HostIP: ip})
	}
}

func asks(name v1.ResourceName, q string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(q)}
	}
}

func sets(name string, hostNetwork bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.HostNetwork = hostNetwork
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: name, Value: "1"}}}
	}
}

func selects(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func TestAdmit(t *testing.T) {
	n := Node{Name: "n1", OS: "linux", Arch: "arm64", Labels: map[string]string{"disk": "ssd"}, Sysctls: []string{"net.core.*"}, Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("2")}}
	for _, tt := range []struct {
		name   string
		pod    *v1.Pod
		others []*v1.Pod
		want   string
	}{
		{"plain", pod("a"), nil, ""},
		{"other system", pod("a", func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }), nil, "PodOSNotSupported"},
		{"other architecture", pod("a", selects(v1.LabelArchStable, "amd64")), nil, "PodOSSelectorNodeLabelDoesNotMatch"},
		{"this architecture", pod("a", selects(v1.LabelArchStable, "arm64")), nil, ""},
		{"selector", pod("a", selects("disk", "hdd")), nil, "NodeAffinity"},
		{"selector fits", pod("a", selects("disk", "ssd")), nil, ""},
		{"bound elsewhere", pod("a", func(p *v1.Pod) { p.Spec.NodeName = "n2" }), nil, "NodeName"},
		{"safe sysctl", pod("a", sets("net/ipv4/tcp_syncookies", false)), nil, ""},
		{"allowed sysctl", pod("a", sets("net.core.somaxconn", false)), nil, ""},
		{"unsafe sysctl", pod("a", sets("kernel.msgmax", false)), nil, "SysctlForbidden"},
		{"sysctl of the host", pod("a", sets("net.core.somaxconn", true)), nil, "SysctlForbidden"},
		{"same name", pod("a", func(p *v1.Pod) { p.Name = "b" }), []*v1.Pod{pod("b")}, "DuplicatePodName"},
		{"itself", pod("a", onPort(80, "", "")), []*v1.Pod{pod("a", onPort(80, "", ""))}, ""},
		{"same port", pod("a", onPort(80, "", "")), []*v1.Pod{pod("b", onPort(80, "TCP", ""))}, "NodePorts"},
		{"other protocol", pod("a", onPort(80, "UDP", "")), []*v1.Pod{pod("b", onPort(80, "TCP", ""))}, ""},
		{"other addresses", pod("a", onPort(80, "", "10.0.0.1")), []*v1.Pod{pod("b", onPort(80, "", "10.0.0.2"))}, ""},
		{"all addresses", pod("a", onPort(80, "", "10.0.0.1")), []*v1.Pod{pod("b", onPort(80, "", "0.0.0.0"))}, "NodePorts"},
		{"cpu fits", pod("a", asks("cpu", "500m")), []*v1.Pod{pod("b", asks("cpu", "1500m"))}, ""},
		{"cpu does not", pod("a", asks("cpu", "501m")), []*v1.Pod{pod("b", asks("cpu", "1500m"))}, "OutOfcpu"},
		{"memory does not", pod("a", asks("memory", "2Gi")), nil, "OutOfmemory"},
		{"no such thing", pod("a", asks("example.com/gpu", "1")), nil, "OutOfexample.com/gpu"},
		{"too many", pod("a"), []*v1.Pod{pod("b"), pod("c")}, "OutOfpods"},
	} {
		r := Admit(tt.pod, tt.others, n)
		if r == nil {
			r = &Rejection{}
		}
		if r.Reason != tt.want || (r.Reason == "") != (r.Message == "") {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
}

func TestRequests(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	cpu := func(name, q string) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(q)}}}
	}
	sidecar := cpu("s", "3")
	sidecar.RestartPolicy = &always
	for _, tt := range []struct {
		inits []v1.Container
		want  string
	}{
		{nil, "2"},
		{[]v1.Container{cpu("i", "5")}, "5"},
		{[]v1.Container{cpu("i", "1")}, "2"},
		{[]v1.Container{sidecar}, "5"},
		{[]v1.Container{sidecar, cpu("i", "4")}, "7"},
		{[]v1.Container{cpu("i", "4"), sidecar}, "5"},
	} {
		p := pod("a")
		p.Spec.Containers, p.Spec.InitContainers = []v1.Container{cpu("c", "1"), cpu("d", "1")}, tt.inits
		if got := Requests(p)[v1.ResourceCPU]; got.String() != tt.want {
			t.Errorf("%d init containers: %s, not %s", len(tt.inits), got.String(), tt.want)
		}
	}
}
