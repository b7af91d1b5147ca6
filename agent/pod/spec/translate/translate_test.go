package translate

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/podtest"
)

func ptr[T any](v T) *T { return &v }

func aPod() *v1.Pod {
	p := podtest.New("web", podtest.UID("u1"), podtest.Image("app:1"), podtest.Annotation("note", "n"))
	p.Labels = map[string]string{"app": "web"}
	p.Status.PodIPs = []v1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}
	return p
}

func aNode() Node {
	return Node{Name: "n1", IPs: []string{"192.168.0.2"}, ClusterDNS: []string{"10.96.0.10"}, ClusterDomain: "cluster.local", LogDir: "/var/log/pods", SeccompDir: "/k/seccomp",
		MemoryBytes: 4 << 30, Resolv: DNS{Servers: []string{"1.1.1.1"}, Searches: []string{"lan"}, Options: []string{"edns0"}},
		Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("3Gi")}}
}

// An objects is an object source with one object of each kind.
type objects struct{}

func (objects) ConfigMap(_ *v1.Pod, name string) (*v1.ConfigMap, error) {
	if name != "cm" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &v1.ConfigMap{Data: map[string]string{"k": "v", "l": "w"}}, nil
}

func (objects) Secret(_ *v1.Pod, name string) (*v1.Secret, error) {
	if name != "s" {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	return &v1.Secret{Data: map[string][]byte{"p": []byte("hush")}}, nil
}

func (objects) Services(*v1.Pod) ([]v1.Service, error) { return nil, nil }

// A services is an object source with additional services.
type services struct {
	objects
	all []v1.Service
	err error
}

func (s services) Services(*v1.Pod) ([]v1.Service, error) { return s.all, s.err }

func service(namespace, name, ip string, ports ...v1.ServicePort) v1.Service {
	s := v1.Service{Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
	s.Namespace, s.Name = namespace, name
	return s
}

func TestServiceVariables(t *testing.T) {
	web := v1.ServicePort{Name: "web-ui", Port: 80, Protocol: v1.ProtocolTCP}
	all := []v1.Service{
		service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443, Protocol: v1.ProtocolTCP}),
		service("app", "my-db", "fd00::5", web, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP}),
		service("app", "headless", "None", web), service("app", "external", ""), service("other", "db", "10.96.0.9", web), service("default", "db", "10.96.0.8", web),
	}
	api := []string{"KUBERNETES_PORT=tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP=tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP_ADDR=10.96.0.1", "KUBERNETES_PORT_443_TCP_PORT=443",
		"KUBERNETES_PORT_443_TCP_PROTO=tcp", "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443", "KUBERNETES_SERVICE_PORT_HTTPS=443"}
	own := []string{"MY_DB_PORT=tcp://[fd00::5]:80", "MY_DB_PORT_53_UDP=udp://[fd00::5]:53", "MY_DB_PORT_53_UDP_ADDR=fd00::5", "MY_DB_PORT_53_UDP_PORT=53", "MY_DB_PORT_53_UDP_PROTO=udp",
		"MY_DB_PORT_80_TCP=tcp://[fd00::5]:80", "MY_DB_PORT_80_TCP_ADDR=fd00::5", "MY_DB_PORT_80_TCP_PORT=80", "MY_DB_PORT_80_TCP_PROTO=tcp",
		"MY_DB_SERVICE_HOST=mine", "MY_DB_SERVICE_PORT=80", "MY_DB_SERVICE_PORT_DNS=53", "MY_DB_SERVICE_PORT_WEB_UI=80"}
	env := func(links *bool, s services) []string {
		t.Helper()
		p := aPod()
		p.Namespace, p.Spec.EnableServiceLinks = "app", links
		c := &v1.Container{Name: "c", Env: []v1.EnvVar{{Name: "AT", Value: "$(KUBERNETES_SERVICE_HOST):$(MY_DB_SERVICE_HOST)"}, {Name: "MY_DB_SERVICE_HOST", Value: "mine"}}}
		cfg, _, err := Container(p, c, aNode(), Attempt{}, s, NoFiles{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range cfg.Envs {
			got = append(got, e.Key+"="+string(e.Value))
		}
		return got
	}
	slices.Sort(own)
	got := env(nil, services{all: all})
	slices.Sort(got[2:])
	want := append([]string{"AT=10.96.0.1:fd00::5", "MY_DB_SERVICE_HOST=mine"}, slices.Concat(api, own[:9], own[10:])...)
	slices.Sort(want[2:])
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	got = env(ptr(false), services{all: all})
	if d := cmp.Diff(append([]string{"AT=10.96.0.1:$(MY_DB_SERVICE_HOST)", "MY_DB_SERVICE_HOST=mine"}, api...), got); d != "" {
		t.Error(d)
	}
	hidden := service("app", "kubernetes", "10.96.0.7", web)
	for _, order := range [][]v1.Service{{all[0], hidden}, {hidden, all[0]}} {
		if got := env(nil, services{all: order}); !slices.Contains(got, "KUBERNETES_SERVICE_HOST=10.96.0.7") {
			t.Error("a service of the pod's own namespace comes first:", got)
		}
	}
	if _, _, err := Container(aPod(), &v1.Container{Name: "c"}, aNode(), Attempt{}, services{err: errors.New("not read yet")}, NoFiles{}); err == nil {
		t.Error("started without knowing the services")
	}
}

func TestResourceField(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
		l["hugepages-2Mi"] = resource.MustParse("4Mi")
		return l
	}
	p := aPod()
	p.Spec.InitContainers = []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{Limits: list("1500m", "64Mi")}}}
	for _, tt := range []struct {
		container, resource, divisor, want string
	}{
		{"init", "limits.cpu", "0", "2"}, {"init", "limits.cpu", "1m", "1500"}, {"init", "limits.memory", "1Mi", "64"}, {"init", "limits.memory", "60Mi", "2"},
		{"init", "limits.hugepages-2Mi", "0", "4194304"}, {"init", "requests.cpu", "0", "0"},
		{"c", "limits.cpu", "1", "2"}, {"c", "limits.memory", "1Gi", "3"}, {"c", "limits.hugepages-2Mi", "0", "0"},
		{"c", "limits.pods", "1", ""}, {"c", "cpu", "1", ""}, {"none", "limits.cpu", "1", ""}, {"", "limits.cpu", "1", ""},
	} {
		f := Fields{Node: aNode}
		got, err := f.Resource(p, &v1.ResourceFieldSelector{ContainerName: tt.container, Resource: tt.resource, Divisor: resource.MustParse(tt.divisor)})
		if got != tt.want || (err != nil) != (tt.want == "") {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
	}
	p.Spec.Resources = &v1.ResourceRequirements{Limits: list("500m", "1Gi")}
	if got, err := ResourceField(p, &p.Spec.Containers[0], &v1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1m")}, aNode()); got != "500" {
		t.Error("the limit of the pod:", got, err)
	}
}

func TestExpand(t *testing.T) {
	known := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "EMPTY": "", "SELF": "$(SELF)"}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"$(A)": "1", "x$(A)y$(A)": "x1y1", "$(B)": "$(B)", "$$(A)": "$(A)", "$$$(A)": "$1", "$A": "$A", "$": "$", "$(A": "$(A", "$()": "$()", "$(EMPTY)": "", "$(SELF)": "$(SELF)", "$((A))": "$((A))", "a$": "a$", "$$": "$",
	} {
		if got := Expand(in, known); got != want {
			t.Errorf("%q becomes %q, not %q", in, got, want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	f.Add("$(A)$$(B)$")
	f.Fuzz(func(t *testing.T, s string) {
		nothing := func(string) (string, bool) { return "", false }
		if got := Expand(s, nothing); len(got) > len(s) || strings.Count(got, "(") != strings.Count(s, "(") {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}

func TestEnvironment(t *testing.T) {
	field := func(path string) *v1.EnvVarSource {
		return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
	}
	res := func(r, divisor string) *v1.EnvVarSource {
		return &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: r, Divisor: resource.MustParse(divisor)}}
	}
	key := func(cm, k string, optional bool) *v1.EnvVarSource {
		return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: cm}, Key: k, Optional: &optional}}
	}
	ctr := &v1.Container{
		Name: "c", Command: []string{"run", "$(NAME)"}, Args: []string{"$(UNKNOWN)", "$(A)$(B)"},
		EnvFrom: []v1.EnvFromSource{{Prefix: "CM_", ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
			{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: ptr(true)}}},
		Env: []v1.EnvVar{
			{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)2$(C)"}, {Name: "C", Value: "late"}, {Name: "A", Value: "3"},
			{Name: "NAME", ValueFrom: field("metadata.name")}, {Name: "IP", ValueFrom: field("status.podIP")}, {Name: "IPS", ValueFrom: field("status.podIPs")},
			{Name: "HOST", ValueFrom: field("status.hostIP")}, {Name: "NODE", ValueFrom: field("spec.nodeName")}, {Name: "APP", ValueFrom: field("metadata.labels['app']")},
			{Name: "CPU", ValueFrom: res("requests.cpu", "1m")}, {Name: "CPUS", ValueFrom: res("limits.cpu", "0")}, {Name: "MEM", ValueFrom: res("limits.memory", "1Mi")},
			{Name: "K", ValueFrom: key("cm", "k", false)}, {Name: "OPT", ValueFrom: key("cm", "none", true)}, {Name: "CM_l", Value: "mine"},
		},
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("100M")}},
	}
	cfg, _, err := Container(aPod(), ctr, aNode(), Attempt{}, objects{}, NoFiles{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range cfg.Envs {
		got = append(got, e.Key+"="+string(e.Value))
	}
	want := []string{"CM_k=v", "CM_l=mine", "p=hush", "A=3", "B=12$(C)", "C=late", "NAME=web", "IP=10.0.0.7", "IPS=10.0.0.7,fd00::7", "HOST=192.168.0.2", "NODE=n1", "APP=web",
		"CPU=250", "CPUS=2", "MEM=96", "K=v"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"run", "web"}, cfg.Command) + cmp.Diff([]string{"$(UNKNOWN)", "312$(C)"}, cfg.Args); d != "" {
		t.Error(d)
	}
	for name, env := range map[string]v1.EnvVar{
		"no such map":   {Name: "X", ValueFrom: key("none", "k", false)},
		"no such key":   {Name: "X", ValueFrom: key("cm", "none", false)},
		"no such field": {Name: "X", ValueFrom: field("spec.secret")},
		"no apiserver":  {Name: "X", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{}}},
	} {
		var o Objects = objects{}
		if name == "no apiserver" {
			o = NoObjects{}
		}
		if _, _, err := Container(aPod(), &v1.Container{Name: "c", Env: []v1.EnvVar{env}}, aNode(), Attempt{}, o, NoFiles{}); err == nil {
			t.Errorf("%s is not an error", name)
		}
	}
}

// TestNoHostAddress checks that a container which asks for an address of the host does not start before the host has one. Other containers
// start.
func TestNoHostAddress(t *testing.T) {
	for _, hostNetwork := range []bool{false, true} {
		for _, path := range []string{"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs", "spec.nodeName"} {
			p, n := aPod(), aNode()
			p.Spec.HostNetwork, p.Status = hostNetwork, v1.PodStatus{}
			n.IPs = nil
			waits := strings.HasPrefix(path, "status.hostIP") || hostNetwork && strings.HasPrefix(path, "status.podIP")
			env := v1.EnvVar{Name: "X", ValueFrom: &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}}
			_, _, err := Container(p, &v1.Container{Name: "c", Env: []v1.EnvVar{env}}, n, Attempt{}, objects{}, NoFiles{})
			if (err != nil) != waits {
				t.Errorf("%s, host network %v: %v", path, hostNetwork, err)
			}
		}
	}
}

func TestSandbox(t *testing.T) {
	p := aPod()
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 8080, HostIP: "127.0.0.1"}, {ContainerPort: 53, HostPort: 53, Protocol: "UDP"}, {ContainerPort: 9}}
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr(int64(7)), Sysctls: []v1.Sysctl{{Name: "net/ipv4/ip_forward", Value: "1"}}}
	p.Spec.ShareProcessNamespace = ptr(true)
	cfg, err := Sandbox(p, aNode(), 3, time.Unix(1234, 0))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Hostname != "web" || cfg.Metadata.Attempt != 3 || cfg.LogDirectory != "/var/log/pods/default_web_u1" ||
		cfg.Labels["app"] != "web" || cfg.Labels[keys.PodUID] != "u1" ||
		cfg.Annotations["note"] != "n" || cfg.Annotations[keys.Started] != "1234" || cfg.Linux.Sysctls["net.ipv4.ip_forward"] != "1" {
		t.Errorf("%+v", cfg)
	}
	if len(cfg.PortMappings) != 2 || cfg.PortMappings[1].Protocol != api.Protocol_UDP || cfg.PortMappings[0].HostIp != "127.0.0.1" {
		t.Errorf("%+v", cfg.PortMappings)
	}
	always := v1.ContainerRestartPolicyAlways
	of := func(name string, port int32, policy *v1.ContainerRestartPolicy) v1.Container {
		return v1.Container{Name: name, Ports: []v1.ContainerPort{{ContainerPort: port, HostPort: 8080}}, RestartPolicy: policy}
	}
	p.Spec.InitContainers = []v1.Container{of("i", 1, nil), of("s", 2, &always)}
	cfg, err = Sandbox(p, aNode(), 3, time.Unix(1234, 0))
	if err != nil || len(cfg.PortMappings) != 3 || cfg.PortMappings[0].ContainerPort != 80 || cfg.PortMappings[2].ContainerPort != 2 {
		t.Errorf("an init container has no host port, and the ports of a sidecar come last: %+v, %v", cfg.PortMappings, err)
	}
	p.Spec.InitContainers = nil
	if o := cfg.Linux.SecurityContext.NamespaceOptions; o.Pid != api.NamespaceMode_POD || o.Network != api.NamespaceMode_POD {
		t.Errorf("%+v", o)
	}
	p.Spec.HostNetwork = true
	if cfg, err = Sandbox(p, aNode(), 0, t0()); err != nil || cfg.Hostname != "" || cfg.PortMappings != nil ||
		cfg.Linux.SecurityContext.NamespaceOptions.Network != api.NamespaceMode_NODE {
		t.Errorf("host network: %+v, %v", cfg, err)
	}
}

// TestDefaultSysctls checks that a pod gets the sysctls in defaultPodSysctls. It does not get those that it sets itself, or those outside
// its own namespaces.
func TestDefaultSysctls(t *testing.T) {
	n := aNode()
	n.Sysctls = map[string]string{"net/ipv4/ip_forward": "1", "net.core.somaxconn": "64", "kernel.sem": "1 2 3 4", "fs.mqueue.msg_max": "9", "kernel.domainname": "d", "vm.x": "1"}
	for name, tt := range map[string]struct {
		change func(*v1.PodSpec)
		want   map[string]string
	}{
		"all": {func(*v1.PodSpec) {}, map[string]string{"net.ipv4.ip_forward": "1", "net.core.somaxconn": "64", "kernel.sem": "1 2 3 4",
			"fs.mqueue.msg_max": "9", "kernel.domainname": "d"}},
		"the pod's own": {func(s *v1.PodSpec) {
			s.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net/core/somaxconn", Value: "7"}}}
			s.HostIPC = true
		}, map[string]string{"net.ipv4.ip_forward": "1", "net.core.somaxconn": "7", "kernel.domainname": "d"}},
		"host's network": {func(s *v1.PodSpec) { s.HostNetwork = true }, map[string]string{"kernel.sem": "1 2 3 4", "fs.mqueue.msg_max": "9"}},
	} {
		p := aPod()
		tt.change(&p.Spec)
		cfg, err := Sandbox(p, n, 0, t0())
		if err != nil || !maps.Equal(cfg.Linux.Sysctls, tt.want) {
			t.Errorf("%s: %v, %v", name, cfg.GetLinux().GetSysctls(), err)
		}
	}
}

func t0() time.Time { return time.Unix(0, 0) }
