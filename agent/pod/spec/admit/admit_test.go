package admit

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"

	"github.com/islet-edge/islet/internal/config"
)

func pod(uid string, change ...func(*v1.Pod)) *v1.Pod {
	p := podtest.New(uid)
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

// firstIsInit turns the only container of a pod into an init container with a restart policy.
func firstIsInit(policy *v1.ContainerRestartPolicy) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, []v1.Container{{Name: "main"}}
		p.Spec.InitContainers[0].RestartPolicy = policy
	}
}

func asks(name v1.ResourceName, q string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(q)}
	}
}

func wholeAsks(name v1.ResourceName, q string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		list := v1.ResourceList{name: resource.MustParse(q), "memory": resource.MustParse("1Mi")}
		p.Spec.Resources = &v1.ResourceRequirements{Requests: list, Limits: list}
	}
}

func sets(name string, hostNetwork bool) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.HostNetwork = hostNetwork
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: name, Value: "1"}}}
	}
}

func confined(by v1.AppArmorProfileType) func(*v1.Pod) {
	return func(p *v1.Pod) {
		asks("cpu", "0")(p)
		p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: by}}
	}
}

func labelled(kind string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		asks("cpu", "0")(p)
		p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Type: kind}}
	}
}

func selects(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
}

func requires(key string, op v1.NodeSelectorOperator, values ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		terms := []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}}
		if key == "metadata.name" {
			terms[0].MatchFields, terms[0].MatchExpressions = terms[0].MatchExpressions, nil
		}
		p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}
	}
}

func withSource(source string, tolerates ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations = map[string]string{keys.ConfigSource: source}
		for _, key := range tolerates {
			p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists})
		}
	}
}

func TestTaints(t *testing.T) {
	n := Node{Taints: []v1.Taint{{Key: "later", Effect: v1.TaintEffectNoSchedule}, {Key: "gone", Value: "1", Effect: v1.TaintEffectNoExecute}}}
	for _, tt := range []struct {
		pod  *v1.Pod
		want string
	}{
		{pod("intolerant", withSource(keys.SourceAPI)), "TaintToleration"},
		{pod("other", withSource(keys.SourceAPI, "later")), "TaintToleration"},
		{pod("tolerant", withSource(keys.SourceAPI, "gone")), ""},
		{pod("all", withSource(keys.SourceAPI, "")), ""},
		{pod("static", withSource(keys.SourceFile)), ""},
	} {
		if r := Admit(NewHolder(tt.pod), nil, n); (r == nil) != (tt.want == "") || r != nil && r.Reason != tt.want {
			t.Errorf("%s: %+v, want %q", tt.pod.Name, r, tt.want)
		}
	}
}

// This helper adds a claim to the pod's status, as the scheduler does. The claim is for a resource of all containers.
func claimed(resource string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		st := &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "claim"}
		for _, c := range p.Spec.Containers {
			st.RequestMappings = append(st.RequestMappings, v1.ContainerExtendedResourceRequest{ContainerName: c.Name, ResourceName: resource, RequestName: "r"})
		}
		p.Status.ExtendedResourceClaimStatus = st
	}
}

func TestPressure(t *testing.T) {
	asks := func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
	}
	high := func(p *v1.Pod) { p.Spec.Priority = new(int32(2_000_000_000)) }
	memory, disk, pids := v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure
	for _, tt := range []struct {
		pod  *v1.Pod
		has  []v1.NodeConditionType
		want string
	}{
		{pod("effort", withSource(keys.SourceAPI)), nil, ""},
		{pod("effort", withSource(keys.SourceAPI)), []v1.NodeConditionType{memory}, "The node had condition: [MemoryPressure]. "},
		{pod("tolerates", withSource(keys.SourceAPI, v1.TaintNodeMemoryPressure)), []v1.NodeConditionType{memory}, ""},
		{pod("tolerates another", withSource(keys.SourceAPI, v1.TaintNodeDiskPressure)), []v1.NodeConditionType{memory}, "The node had condition: [MemoryPressure]. "},
		{pod("asks", withSource(keys.SourceAPI), asks), []v1.NodeConditionType{memory}, ""},
		{pod("asks", withSource(keys.SourceAPI), asks), []v1.NodeConditionType{disk}, "The node had condition: [DiskPressure]. "},
		{pod("asks", withSource(keys.SourceAPI), asks), []v1.NodeConditionType{disk, memory}, "The node had condition: [DiskPressure MemoryPressure]. "},
		{pod("tolerates all", withSource(keys.SourceAPI, "")), []v1.NodeConditionType{pids}, "The node had condition: [PIDPressure]. "},
		{pod("critical", withSource(keys.SourceAPI), high), []v1.NodeConditionType{disk, memory}, ""},
		{pod("static", withSource(keys.SourceFile)), []v1.NodeConditionType{disk}, ""},
	} {
		r := Admit(NewHolder(tt.pod), nil, Node{Pressures: tt.has})
		if (r == nil) != (tt.want == "") || r != nil && (r.Reason != "Evicted" || r.Message != tt.want) {
			t.Errorf("%s under %v: %+v, want %q", tt.pod.Name, tt.has, r, tt.want)
		}
	}
}

func TestOff(t *testing.T) {
	if r := Admit(NewHolder(pod("a")), nil, Node{ShuttingDown: true}); r == nil || r.Reason != "NodeShutdown" {
		t.Errorf("a pod is admitted during a shutdown: %+v", r)
	}
}

func TestAdmit(t *testing.T) {
	n := Node{AppArmor: errors.New("off"), SELinux: errors.New("off"), Name: "n1", OS: "linux", Arch: "arm64", Labels: map[string]string{"disk": "ssd"}, Sysctls: []string{"net.core.*", "vm.*", "kernel.msg*", "kernel.domainname", "user.*"}, Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourcePods: resource.MustParse("2"),
		"example.com/foo": resource.MustParse("3"), "example.com/gone": {}, "hugepages-1Gi": resource.MustParse("1Gi")}}
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
		{"affinity", pod("a", requires("disk", v1.NodeSelectorOpIn, "hdd", "tape")), nil, "NodeAffinity"},
		{"affinity fits", pod("a", requires("disk", v1.NodeSelectorOpNotIn, "hdd", "tape")), nil, ""},
		{"affinity to architecture", pod("a", requires(v1.LabelArchStable, v1.NodeSelectorOpIn, "arm64")), nil, ""},
		{"affinity to name", pod("a", requires("metadata.name", v1.NodeSelectorOpIn, "n1")), nil, ""},
		{"affinity to another name", pod("a", requires("metadata.name", v1.NodeSelectorOpIn, "n2")), nil, "NodeAffinity"},
		{"affinity to nonsense", pod("a", requires("disk", "Near", "ssd")), nil, "NodeAffinity"},
		{"bound elsewhere", pod("a", func(p *v1.Pod) { p.Spec.NodeName = "n2" }), nil, "NodeName"},
		{"safe sysctl", pod("a", sets("net/ipv4/tcp_syncookies", false)), nil, ""},
		{"safe since 1.37", pod("a", sets("net.ipv4.tcp_slow_start_after_idle", false)), nil, ""},
		{"safe since 1.37, too", pod("a", sets("net.ipv4.tcp_notsent_lowat", false)), nil, ""},
		{"domain of the pod's own host name", pod("a", sets("kernel.domainname", false)), nil, ""},
		{"domain of the host's name", pod("a", sets("kernel.domainname", true)), nil, "SysctlForbidden"},
		{"sysctl of user namespaces", pod("a", sets("user.max_net_namespaces", false)), nil, "SysctlForbidden"},
		{"allowed sysctl", pod("a", sets("net.core.somaxconn", false)), nil, ""},
		{"unsafe sysctl", pod("a", sets("kernel.sem", false)), nil, "SysctlForbidden"},
		{"allowed sysctl of the pod's IPC", pod("a", sets("kernel.msgmax", false)), nil, ""},
		{"of the host's IPC", pod("a", func(p *v1.Pod) { sets("kernel.msgmax", false)(p); p.Spec.HostIPC = true }), nil, "SysctlForbidden"},
		{"allowed, but the host's", pod("a", sets("vm.overcommit_memory", false)), nil, "SysctlForbidden"},
		{"out of its namespace", pod("a", sets("net.core/../../../kernel/core_pattern", false)), nil, "SysctlForbidden"},
		{"sysctl of the host", pod("a", sets("net.core.somaxconn", true)), nil, "SysctlForbidden"},
		{"same name", pod("a", func(p *v1.Pod) { p.Name = "b" }), []*v1.Pod{pod("b")}, "DuplicatePodName"},
		{"itself", pod("a", onPort(80, "", "")), []*v1.Pod{pod("a", onPort(80, "", ""))}, ""},
		{"same port", pod("a", onPort(80, "", "")), []*v1.Pod{pod("b", onPort(80, "TCP", ""))}, "NodePorts"},
		{"other protocol", pod("a", onPort(80, "UDP", "")), []*v1.Pod{pod("b", onPort(80, "TCP", ""))}, ""},
		{"other addresses", pod("a", onPort(80, "", "10.0.0.1")), []*v1.Pod{pod("b", onPort(80, "", "10.0.0.2"))}, ""},
		{"all addresses", pod("a", onPort(80, "", "10.0.0.1")), []*v1.Pod{pod("b", onPort(80, "", "0.0.0.0"))}, "NodePorts"},
		{"port of an init container", pod("a", onPort(80, "", ""), firstIsInit(nil)), []*v1.Pod{pod("b", onPort(80, "", ""))}, ""},
		{"port of another pod's init container", pod("a", onPort(80, "", "")), []*v1.Pod{pod("b", onPort(80, "", ""), firstIsInit(nil))}, ""},
		{"port of a sidecar", pod("a", onPort(80, "", ""), firstIsInit(new(v1.ContainerRestartPolicyAlways))), []*v1.Pod{pod("b", onPort(80, "", ""))}, "NodePorts"},
		{"cpu fits", pod("a", asks("cpu", "500m")), []*v1.Pod{pod("b", asks("cpu", "1500m"))}, ""},
		{"cpu does not", pod("a", asks("cpu", "501m")), []*v1.Pod{pod("b", asks("cpu", "1500m"))}, "OutOfcpu"},
		{"memory does not", pod("a", asks("memory", "2Gi")), nil, "OutOfmemory"},
		{"of others", pod("a", asks("example.com/gpu", "1")), nil, ""},
		{"of others, and advertised", pod("a", asks("example.com/foo", "2")), []*v1.Pod{pod("b", asks("example.com/foo", "1"))}, ""},
		{"of others, and used up", pod("a", asks("example.com/foo", "2")), []*v1.Pod{pod("b", asks("example.com/foo", "2"))}, "OutOfexample.com/foo"},
		{"of others, by a claim", pod("a", asks("example.com/foo", "4"), claimed("example.com/foo")), nil, ""},
		{"of others, by a claim of another container", pod("a", asks("example.com/foo", "4"), func(p *v1.Pod) { claimed("example.com/foo")(p); p.Spec.Containers[0].Name = "b" }), nil, "OutOfexample.com/foo"},
		{"of a class of devices", pod("a", asks("deviceclass.resource.kubernetes.io/gpu", "1"), claimed("deviceclass.resource.kubernetes.io/gpu")), nil, ""},
		{"of a class of devices, without a claim", pod("a", asks("deviceclass.resource.kubernetes.io/gpu", "1")), nil, "OutOfdeviceclass.resource.kubernetes.io/gpu"},
		{"of others, and removed", pod("a", asks("example.com/gone", "1")), nil, "OutOfexample.com/gone"},
		{"unknown native resource", pod("a", asks("hugepages-2Mi", "2Mi")), nil, "OutOfhugepages-2Mi"},
		{"huge pages of the pod as a whole", pod("a", wholeAsks("hugepages-1Gi", "1Gi")), nil, ""},
		{"more huge pages of the pod as a whole", pod("a", wholeAsks("hugepages-1Gi", "2Gi")), nil, "OutOfhugepages-1Gi"},
		{"too many", pod("a"), []*v1.Pod{pod("b"), pod("c")}, "OutOfpods"},
		{"AppArmor", pod("a", confined(v1.AppArmorProfileTypeRuntimeDefault)), nil, "AppArmor"},
		{"no AppArmor", pod("a", confined(v1.AppArmorProfileTypeUnconfined)), nil, ""},
		{"AppArmor by annotation", pod("a", func(p *v1.Pod) {
			asks("cpu", "0")(p)
			p.Annotations = map[string]string{v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + p.Spec.Containers[0].Name: "localhost/x"}
		}), nil, "AppArmor"},
		{"too large", pod("a", tooLarge), nil, "PodTooLarge"},
		{"called too large by its user", pod("a", func(p *v1.Pod) { p.Annotations = map[string]string{keys.TooLarge: ""} }), nil, ""},
		{"options of mounts", pod("a", bindOptions), nil, "PodFeatureUnsupported"},
		{"strict groups", pod("a", hasGroups(v1.SupplementalGroupsPolicyStrict)), nil, "SupplementalGroupsPolicyNotSupported"},
		{"merged groups", pod("a", hasGroups(v1.SupplementalGroupsPolicyMerge)), nil, ""},
		{"groups", pod("a", func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroups: []int64{7}} }), nil, ""},
		{"SELinux", pod("a", labelled("container_t")), nil, "SELinux"},
		{"no SELinux", pod("a", labelled("spc_t")), nil, ""},
		{"SELinux level", pod("a", asks("cpu", "0"), func(p *v1.Pod) {
			p.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c1,c2"}}
		}), nil, ""},
	} {
		var others []*Holder
		for _, p := range tt.others {
			others = append(others, NewHolder(p))
		}
		r := Admit(NewHolder(tt.pod), others, n)
		if r == nil {
			r = &Rejection{}
		}
		if r.Reason != tt.want || (r.Reason == "") != (r.Message == "") {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
}

func tooLarge(p *v1.Pod) {
	p.Annotations, p.Spec = map[string]string{keys.TooLarge: ""}, v1.PodSpec{}
}

func hasGroups(policy v1.SupplementalGroupsPolicy) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &policy} }
}

// TestStrictGroups checks that a pod with strict groups is admitted if the runtime supports them. The command islet check does not reject
// the pod, because islet's own runtime supports them.
func TestStrictGroups(t *testing.T) {
	p := pod("a", hasGroups(v1.SupplementalGroupsPolicyStrict))
	if r := Admit(NewHolder(p), nil, Node{StrictGroups: true}); r != nil {
		t.Errorf("rejected: %+v", r)
	}
	if got := Unsupported(p, config.RealTime{}); len(got) > 0 {
		t.Errorf("unsupported: %+v", got)
	}
}

func bindOptions(p *v1.Pod) {
	p.Spec.InitContainers = []v1.Container{{Name: "i", VolumeMounts: []v1.VolumeMount{{Name: "v"}, {Name: "w", BindMountOptions: []string{"noexec"}}}}}
}

// TestBindOptions checks that a pod with mount options is admitted only if the node supports them.
func TestBindOptions(t *testing.T) {
	for _, c := range []struct {
		alpha  []string
		reason string
	}{{nil, "PodFeatureUnsupported"}, {[]string{config.GateEmptyDirMode}, "PodFeatureUnsupported"}, {[]string{config.GateBindOptions}, ""}} {
		r := checkFeatures(NewHolder(pod("a", bindOptions)), nil, Node{Alpha: c.alpha})
		if got := r != nil; got != (c.reason != "") || got && r.Reason != c.reason {
			t.Errorf("%q: %v", c.alpha, r)
		}
	}
	if r := checkFeatures(NewHolder(pod("a", func(*v1.Pod) {})), nil, Node{}); r != nil {
		t.Errorf("a plain pod: %v", r)
	}
}
