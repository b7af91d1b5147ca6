package translate

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/pod/plan"
	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/keys"
)

// TestSecurityMerge checks that the fields of a container override those of its pod.
func TestSecurityMerge(t *testing.T) {
	p := aPod()
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr(int64(1)), RunAsGroup: ptr(int64(2)), FSGroup: ptr(int64(3)), SupplementalGroups: []int64{4},
		SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault}, SELinuxOptions: &v1.SELinuxOptions{Level: "pod"}}
	ctr := &v1.Container{SecurityContext: &v1.SecurityContext{RunAsUser: ptr(int64(9)), ReadOnlyRootFilesystem: ptr(true), AllowPrivilegeEscalation: ptr(false),
		Capabilities: &v1.Capabilities{Add: []v1.Capability{"NET_ADMIN"}, Drop: []v1.Capability{"ALL"}}, AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}}}
	sc, err := securityContext(p, ctr, aNode(), &api.Image{Uid: &api.Int64Value{Value: 77}})
	if err != nil {
		t.Fatal(err)
	}
	if sc.RunAsUser.Value != 9 || sc.RunAsGroup.Value != 2 || !slices.Equal(sc.SupplementalGroups, []int64{3, 4}) || !sc.ReadonlyRootfs || !sc.NoNewPrivs ||
		sc.Seccomp.ProfileType != api.SecurityProfile_RuntimeDefault || sc.SelinuxOptions.Level != "pod" ||
		sc.Apparmor.ProfileType != api.SecurityProfile_Unconfined ||
		sc.Capabilities.AddCapabilities[0] != "NET_ADMIN" || sc.Capabilities.DropCapabilities[0] != "ALL" || len(sc.MaskedPaths) == 0 {
		t.Errorf("%+v", sc)
	}
	ctr.SecurityContext = &v1.SecurityContext{Privileged: ptr(true), SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr("p.json")}}
	if sc, _ = securityContext(p, ctr, aNode(), nil); !sc.Privileged || sc.MaskedPaths != nil ||
		sc.Seccomp.LocalhostRef != "/k/seccomp/p.json" {
		t.Errorf("%+v", sc)
	}
	n := aNode()
	n.SeccompDefault = true
	if sc, _ = securityContext(aPod(), &v1.Container{}, n, &api.Image{Username: "app"}); sc.Seccomp.ProfileType != api.SecurityProfile_RuntimeDefault || sc.RunAsUsername != "app" || sc.RunAsUser != nil {
		t.Errorf("%+v", sc)
	}
	if sc, _ = securityContext(aPod(), &v1.Container{}, aNode(), nil); sc.Seccomp.ProfileType != api.SecurityProfile_Unconfined ||
		sc.NoNewPrivs {
		t.Errorf("%+v", sc)
	}
}

// TestMasks checks that the masked and read-only paths are the same as in a kubelet (k8s.io/kubernetes/pkg/securitycontext, 1.37). The
// paths below /sys/devices/system/cpu depend on the machine. A container with procMount Unmasked has no such paths.
func TestMasks(t *testing.T) {
	n := aNode()
	n.Throttles = []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"}
	want := []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/scsi",
		"/proc/timer_list", "/proc/timer_stats", "/sys/devices/system/cpu/cpu0/thermal_throttle", "/sys/devices/virtual/powercap", "/sys/firmware"}
	sc, err := securityContext(aPod(), &v1.Container{}, n, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(slices.Values(sc.MaskedPaths)); !slices.Equal(got, want) {
		t.Errorf("masked are %v", got)
	}
	if got, want := slices.Sorted(slices.Values(sc.ReadonlyPaths)), []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}; !slices.Equal(got, want) {
		t.Errorf("read-only are %v", got)
	}
	sc, err = securityContext(aPod(), &v1.Container{SecurityContext: &v1.SecurityContext{ProcMount: ptr(v1.UnmaskedProcMount)}}, n, nil)
	if err != nil || len(sc.MaskedPaths)+len(sc.ReadonlyPaths) > 0 {
		t.Errorf("unmasked: %v, %v, %v", sc.MaskedPaths, sc.ReadonlyPaths, err)
	}
}

func TestRunAsNonRoot(t *testing.T) {
	for _, tt := range []struct {
		user  *int64
		image *api.Image
		ok    bool
	}{
		{ptr(int64(1)), nil, true},
		{ptr(int64(0)), nil, false},
		{nil, &api.Image{Uid: &api.Int64Value{Value: 5}}, true},
		{nil, &api.Image{Uid: &api.Int64Value{}}, false},
		{nil, &api.Image{Username: "app"}, false},
		{nil, &api.Image{}, false},
		{nil, nil, false},
	} {
		ctr := &v1.Container{SecurityContext: &v1.SecurityContext{RunAsNonRoot: ptr(true), RunAsUser: tt.user}}
		if _, err := securityContext(aPod(), ctr, aNode(), tt.image); (err == nil) != tt.ok {
			t.Errorf("user %v, image %v: %v", tt.user, tt.image, err)
		}
	}
}

func TestResources(t *testing.T) {
	list := func(cpu, mem string) v1.ResourceList {
		l := v1.ResourceList{}
		if cpu != "" {
			l[v1.ResourceCPU] = resource.MustParse(cpu)
		}
		if mem != "" {
			l[v1.ResourceMemory] = resource.MustParse(mem)
		}
		return l
	}
	for _, tt := range []struct {
		name                    string
		req, lim                v1.ResourceList
		priority                int32
		shares, quota, mem, oom int64
	}{
		{"besteffort", nil, nil, 0, 2, 0, 0, 1000},
		{"guaranteed", list("500m", "1Gi"), list("500m", "1Gi"), 0, 512, 50000, 1 << 30, -997},
		{"burstable", list("250m", "1Gi"), list("1", ""), 0, 256, 100000, 0, 750},
		{"limit only", nil, list("2", ""), 0, 2048, 200000, 0, 999},
		{"tiny", list("1m", ""), list("1m", ""), 0, 2, 1000, 0, 999},
		{"critical", nil, nil, demand.SystemNodeCritical, 2, 0, 0, -997},
		{"all the memory", list("", "4Gi"), nil, 0, 2, 0, 0, 3},
	} {
		p := aPod()
		p.Spec.Priority = &tt.priority
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: tt.req, Limits: tt.lim}
		r := linuxResources(p, &p.Spec.Containers[0], aNode())
		if r.CpuShares != tt.shares || r.CpuQuota != tt.quota || r.MemoryLimitInBytes != tt.mem || r.OomScoreAdj != tt.oom {
			t.Errorf("%s: %+v", tt.name, r)
		}
	}
	p := aPod()
	p.Spec.PriorityClassName = "system-node-critical"
	if r := linuxResources(p, &p.Spec.Containers[0], aNode()); r.OomScoreAdj != 1000 {
		t.Errorf("a pod of the API server that names a class, but has no priority: %d", r.OomScoreAdj)
	}
	p = aPod()
	p.Spec.Containers[0].Resources.Limits = v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}
	if r := linuxResources(p, &p.Spec.Containers[0], aNode()); len(r.HugepageLimits) != 1 || r.HugepageLimits[0].PageSize != "2MB" ||
		r.HugepageLimits[0].Limit != 4<<20 {
		t.Errorf("%+v", r.HugepageLimits)
	}
}

// TestHugePages checks that a container gets huge pages of a size only if the container or its pod has a limit for this size. The
// container's limit overrides the pod's.
func TestHugePages(t *testing.T) {
	n := aNode()
	n.Allocatable["hugepages-2Mi"], n.Allocatable["hugepages-1Gi"] = resource.MustParse("8Mi"), resource.MustParse("0")
	limits := func(l v1.ResourceList) v1.ResourceRequirements { return v1.ResourceRequirements{Limits: l} }
	two, four := v1.ResourceList{"hugepages-2Mi": resource.MustParse("2Mi")}, v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}
	for _, tt := range []struct {
		name       string
		whole, own v1.ResourceList
		want       uint64
	}{
		{"asks for none", nil, nil, 0}, {"its own", nil, two, 2 << 20}, {"its pod's", four, nil, 4 << 20}, {"its own before its pod's", four, two, 2 << 20},
	} {
		p := aPod()
		p.Spec.Containers[0].Resources = limits(tt.own)
		if tt.whole != nil {
			whole := limits(tt.whole)
			p.Spec.Resources = &whole
		}
		got := linuxResources(p, &p.Spec.Containers[0], n).HugepageLimits
		if len(got) != 2 || got[0].PageSize != "1GB" || got[0].Limit != 0 || got[1].PageSize != "2MB" || got[1].Limit != tt.want {
			t.Errorf("%s: %+v, want 2MB up to %d and none of 1GB", tt.name, got, tt.want)
		}
	}
}

func TestContainer(t *testing.T) {
	p := aPod()
	p.Spec.TerminationGracePeriodSeconds = ptr(int64(5))
	ctr := &v1.Container{Name: "c", Image: "app:1", WorkingDir: "/w", Stdin: true, TTY: true, TerminationMessagePath: "/t", TerminationMessagePolicy: "File",
		Env:          []v1.EnvVar{{Name: "POD", Value: "p"}},
		VolumeMounts: []v1.VolumeMount{{Name: "v", SubPathExpr: "$(POD)/x"}, {Name: "v", SubPath: "$(POD)"}},
		Lifecycle:    &v1.Lifecycle{StopSignal: ptr(v1.SIGUSR1)}}
	cfg, hooked, err := Container(p, ctr, aNode(), Attempt{Number: 4, Streak: 2, Ref: "sha256:1"}, NoObjects{}, NoFiles{})
	if err != nil {
		t.Fatal(err)
	}
	a := cfg.Annotations
	if cfg.LogPath != "c/4.log" || cfg.Metadata.Attempt != 4 || cfg.Image.Image != "sha256:1" ||
		cfg.Image.UserSpecifiedImage != "app:1" || cfg.StopSignal != api.Signal_SIGNAL_SIGUSR1 || !cfg.Tty || !cfg.Stdin ||
		a[keys.ContainerHash] != plan.Hash(ctr) || a[keys.RestartCount] != "4" || a[keys.Streak] != "2" || a[keys.MessagePath] != "/t" ||
		a[keys.MessagePolicy] != "File" || a[keys.GracePeriod] != "5" || cfg.Labels[keys.ContainerName] != "c" {
		t.Errorf("%+v", cfg)
	}
	if m := hooked.VolumeMounts; m[0].SubPath != "p/x" || m[0].SubPathExpr != "" || m[1].SubPath != "$(POD)" ||
		ctr.VolumeMounts[0].SubPathExpr == "" {
		t.Errorf("%+v", m)
	}
	ctr.VolumeMounts[0].SubPathExpr = "$(NONE)"
	if _, _, err := Container(p, ctr, aNode(), Attempt{}, NoObjects{}, NoFiles{}); err == nil {
		t.Error("an unknown variable in subPathExpr is not an error")
	}
}

// TestFacts checks that the container's annotations contain the values that the planner needs later.
func TestFacts(t *testing.T) {
	p := aPod()
	ctr := &v1.Container{Name: "c", Image: "app:1", Lifecycle: &v1.Lifecycle{PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{}}}}
	for _, tt := range []struct {
		a           Attempt
		round, hook string
	}{{Attempt{}, "", ""}, {Attempt{Round: 3, Hook: true}, "3", "true"}} {
		cfg, _, err := Container(p, ctr, aNode(), tt.a, NoObjects{}, NoFiles{})
		if err != nil {
			t.Fatal(err)
		}
		if a := cfg.Annotations; a[keys.Round] != tt.round || a[keys.PostStart] != tt.hook {
			t.Errorf("%+v: %v", tt.a, a)
		}
	}
	ctr.Lifecycle.PostStart = nil
	if cfg, _, err := Container(p, ctr, aNode(), Attempt{Hook: true}, NoObjects{}, NoFiles{}); err != nil || cfg.Annotations[keys.PostStart] != "" {
		t.Errorf("a container without a hook waits for one: %v, %v", cfg, err)
	}
}

// TestTarget checks that a container shares its target's processes. If it shares the processes of the pod or of the host, the target has no
// effect.
func TestTarget(t *testing.T) {
	for mode, change := range map[api.NamespaceMode]func(*v1.PodSpec){
		api.NamespaceMode_TARGET: func(*v1.PodSpec) {},
		api.NamespaceMode_POD:    func(s *v1.PodSpec) { s.ShareProcessNamespace = ptr(true) },
		api.NamespaceMode_NODE:   func(s *v1.PodSpec) { s.HostPID = true },
	} {
		p := aPod()
		change(&p.Spec)
		cfg, _, err := Container(p, &v1.Container{Name: "debug"}, aNode(), Attempt{Target: "t1"}, NoObjects{}, NoFiles{})
		if err != nil {
			t.Fatal(err)
		}
		o := cfg.Linux.SecurityContext.NamespaceOptions
		if o.Pid != mode || (o.TargetId == "t1") != (mode == api.NamespaceMode_TARGET) {
			t.Errorf("%v: %v", mode, o)
		}
	}
}

func TestStopSignals(t *testing.T) {
	for signal, want := range map[v1.Signal]api.Signal{v1.SIGTERM: api.Signal_SIGNAL_SIGTERM, v1.SIGRTMIN: api.Signal_SIGNAL_SIGRTMIN, v1.SIGRTMINPLUS3: api.Signal_SIGNAL_SIGRTMINPLUS3, v1.SIGRTMAXMINUS14: api.Signal_SIGNAL_SIGRTMAXMINUS14} {
		cfg, _, err := Container(aPod(), &v1.Container{Name: "c", Lifecycle: &v1.Lifecycle{StopSignal: &signal}}, aNode(), Attempt{}, NoObjects{}, NoFiles{})
		if err != nil || cfg.StopSignal != want {
			t.Errorf("%s: %v, %v", signal, cfg.GetStopSignal(), err)
		}
	}
}

// TestNoSwap checks that containers get no swap on any cgroup version.
func TestNoSwap(t *testing.T) {
	ctr := v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"memory": resource.MustParse("1Mi")}}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{ctr}}}
	for version, want := range map[int]struct {
		both    int64
		unified string
	}{0: {0, ""}, 1: {1 << 20, ""}, 2: {0, "0"}} {
		if r := linuxResources(p, &ctr, Node{SwapCgroup: version}); r.MemorySwapLimitInBytes != want.both || r.Unified["memory.swap.max"] != want.unified {
			t.Errorf("cgroup v%d: memory and swap %d, unified %v", version, r.MemorySwapLimitInBytes, r.Unified)
		}
	}
}

func TestNodeSettings(t *testing.T) {
	ctr := v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": resource.MustParse("500m")}}}
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{ctr}}}
	for _, tt := range []struct {
		n             Node
		period, quota int64
		group         string
	}{
		{Node{}, 100_000, 50_000, ""},
		{Node{CPUPeriod: 20_000, OOMGroup: true}, 20_000, 10_000, "1"},
		{Node{CPUPeriod: 1000}, 1000, 1000, ""}, // the kernel's minimum period
		{Node{CPUPeriod: -1}, 0, 0, ""},
	} {
		r := linuxResources(p, &ctr, tt.n)
		if r.CpuPeriod != tt.period || r.CpuQuota != tt.quota || r.Unified["memory.oom.group"] != tt.group {
			t.Errorf("%+v: period %d quota %d unified %v", tt.n, r.CpuPeriod, r.CpuQuota, r.Unified)
		}
	}
}

// TestGroupAlone checks that a group without a user gets the image's user or root. Runtimes reject a group without a user.
func TestGroupAlone(t *testing.T) {
	for name, c := range map[string]struct {
		image *api.Image
		user  *int64
		named string
	}{
		"no user": {&api.Image{}, ptr(int64(0)), ""},
		"number":  {&api.Image{Uid: &api.Int64Value{Value: 7}}, ptr(int64(7)), ""},
		"name":    {&api.Image{Username: "nina"}, nil, "nina"},
	} {
		p := aPod()
		p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsGroup: ptr(int64(2))}
		sc, err := securityContext(p, &p.Spec.Containers[0], aNode(), c.image)
		if err != nil || (sc.RunAsUser == nil) != (c.user == nil) || sc.RunAsUser != nil && sc.RunAsUser.Value != *c.user ||
			sc.RunAsUsername != c.named || sc.RunAsGroup.GetValue() != 2 {
			t.Errorf("%s: %v, %v", name, sc, err)
		}
	}
}
