package ocispec

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
)

func input(change func(*api.ContainerConfig)) Input {
	c := &api.ContainerConfig{Command: []string{"/x"}, Linux: &api.LinuxContainerConfig{SecurityContext: &api.LinuxContainerSecurityContext{}}}
	if change != nil {
		change(c)
	}
	return Input{Sandbox: &api.PodSandboxConfig{Hostname: "h"}, Container: c, Host: Host{Capabilities: capabilityNames, MinOOMScore: -1000}}
}

func spec(t *testing.T, in Input) *specs.Spec {
	t.Helper()
	s, err := NewSpec(in)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestArgs(t *testing.T) {
	image := imagespec.ImageConfig{Entrypoint: []string{"e"}, Cmd: []string{"c"}}
	for name, c := range map[string]struct {
		command, args []string
		image         imagespec.ImageConfig
		want          string
	}{
		"image":           {nil, nil, image, "e c"},
		"args":            {nil, []string{"a"}, image, "e a"},
		"command":         {[]string{"x"}, nil, image, "x"},
		"both":            {[]string{"x"}, []string{"a"}, image, "x a"},
		"cmd only":        {nil, nil, imagespec.ImageConfig{Cmd: []string{"c"}}, "c"},
		"nothing":         {nil, nil, imagespec.ImageConfig{}, ""},
		"args, no image":  {nil, []string{"a"}, imagespec.ImageConfig{}, "a"},
		"entrypoint only": {nil, nil, imagespec.ImageConfig{Entrypoint: []string{"e"}}, "e"},
	} {
		got, err := mergeArgs(&api.ContainerConfig{Command: c.command, Args: c.args}, c.image)
		if strings.Join(got, " ") != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: %v, %v; want %s", name, got, err, c.want)
		}
	}
}

func TestEnv(t *testing.T) {
	in := input(func(c *api.ContainerConfig) {
		c.Tty = true
		c.Envs = []*api.KeyValue{{Key: "A", Value: []byte("1=2")}, {Key: "HOSTNAME", Value: []byte("own")}}
	})
	in.Image.Env = []string{"PATH=/image", "A=image", "B=image"}
	want := []string{"PATH=/image", "TERM=xterm", "HOSTNAME=own", "A=1=2", "B=image"}
	if got := spec(t, in).Process.Env; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCapabilities(t *testing.T) {
	for name, c := range map[string]struct {
		privileged bool
		add, drop  []string
		host       []string
		want       []string
	}{
		"default":        {want: DefaultCapabilities, host: capabilityNames},
		"add":            {add: []string{"net_admin"}, drop: []string{"ALL"}, host: capabilityNames, want: []string{"CAP_NET_ADMIN"}},
		"drop":           {drop: []string{"KILL"}, host: DefaultCapabilities, want: slices.DeleteFunc(slices.Clone(DefaultCapabilities), func(s string) bool { return s == "CAP_KILL" })},
		"all":            {add: []string{"ALL"}, drop: []string{"SYS_ADMIN"}, host: []string{"CAP_CHOWN", "CAP_SYS_ADMIN"}, want: []string{"CAP_CHOWN"}},
		"privileged":     {privileged: true, drop: []string{"ALL"}, host: []string{"CAP_KILL", "CAP_CHOWN"}, want: []string{"CAP_CHOWN", "CAP_KILL"}},
		"not on host":    {add: []string{"SYS_RESOURCE"}, host: []string{"CAP_KILL"}, want: []string{"CAP_KILL"}},
		"unknown, error": {add: []string{"NO_SUCH"}, host: capabilityNames},
	} {
		got, err := containerCaps(&api.LinuxContainerSecurityContext{Privileged: c.privileged, Capabilities: &api.Capability{AddCapabilities: c.add, DropCapabilities: c.drop}}, c.host)
		if c.want == nil {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
			continue
		}
		want := slices.Sorted(slices.Values(c.want))
		if err != nil || !slices.Equal(got.Effective, want) || !slices.Equal(got.Bounding, want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, want)
		}
	}
}

func TestMounts(t *testing.T) {
	in := input(func(c *api.ContainerConfig) {
		c.Mounts = []*api.Mount{
			{ContainerPath: "/a/b/c/", HostPath: "/deep"}, {ContainerPath: "/a", HostPath: "/shallow", Readonly: true, Propagation: api.MountPropagation_PROPAGATION_BIDIRECTIONAL},
			{ContainerPath: "/etc/hosts", HostPath: "/own"},
			{ContainerPath: "/hard", HostPath: "/data", MountOptions: []string{"noexec", "nodev", "nosuid"}},
			{ContainerPath: "/image", HostPath: "/layers", Image: &api.ImageSpec{Image: "i"}, MountOptions: []string{"noexec"}},
		}
	})
	in.Files = Files{Hosts: "/sandbox/hosts", Hostname: "/sandbox/hostname", Shm: "/sandbox/shm"}
	in.HostOptions = map[string][]string{"/data": {"noexec", "noatime"}, "/locked": {"nosuid", "ro"}, "/trees": {"ro"}}
	in.Container.Mounts = append(in.Container.Mounts, &api.Mount{ContainerPath: "/locked", HostPath: "/locked"},
		&api.Mount{ContainerPath: "/trees", HostPath: "/trees", Readonly: true, RecursiveReadOnly: true})
	s := spec(t, in)
	at := map[string]int{}
	for i, m := range s.Mounts {
		if _, twice := at[m.Destination]; twice {
			t.Errorf("%s is mounted twice", m.Destination)
		}
		at[m.Destination] = i
	}
	if at["/a"] > at["/a/b/c"] || at["/dev"] > at["/dev/shm"] {
		t.Errorf("a child comes before its parent: %v", at)
	}
	if src := s.Mounts[at["/etc/hosts"]].Source; src != "/own" {
		t.Errorf("/etc/hosts is %s", src)
	}
	if _, ok := at["/etc/resolv.conf"]; ok {
		t.Error("a file without a path is mounted")
	}
	for path, want := range map[string][]string{
		"/hard":   {"rbind", "rprivate", "rw", "noexec", "nodev", "nosuid", "noatime"},
		"/locked": {"rbind", "rprivate", "ro", "nosuid"},
		"/trees":  {"rbind", "rprivate", "rro"},
	} {
		if got := s.Mounts[at[path]].Options; !slices.Equal(got, want) {
			t.Errorf("%s: options %q, not %q", path, got, want)
		}
	}
	if got, want := s.Mounts[at["/image"]].Options, []string{"rbind", "rprivate", "rw", "nosuid", "nodev", "noexec"}; !slices.Equal(got, want) {
		t.Errorf("options of an image %q, not %q", got, want)
	}
	if got := s.Mounts[at["/a/b/c"]].Options; slices.Contains(got, "noexec") {
		t.Errorf("options without a request: %q", got)
	}
	if s.Linux.RootfsPropagation != "rshared" || !slices.Contains(s.Mounts[at["/a"]].Options, "ro") {
		t.Errorf("propagation %q, options %v", s.Linux.RootfsPropagation, s.Mounts[at["/a"]].Options)
	}
}

func TestNamespaces(t *testing.T) {
	in := input(nil)
	in.Namespaces = Namespaces{Net: "/n", PID: "/p"}
	in.CgroupV2 = true
	got := map[specs.LinuxNamespaceType]string{}
	for _, n := range spec(t, in).Linux.Namespaces {
		got[n.Type] = n.Path
	}
	want := map[specs.LinuxNamespaceType]string{specs.MountNamespace: "", specs.NetworkNamespace: "/n", specs.PIDNamespace: "/p", specs.CgroupNamespace: ""}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for k, v := range want {
		if p, ok := got[k]; !ok || p != v {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

func TestOOMScore(t *testing.T) {
	in := input(func(c *api.ContainerConfig) { c.Linux.Resources = &api.LinuxContainerResources{OomScoreAdj: -997} })
	if got := *spec(t, in).Process.OOMScoreAdj; got != -997 {
		t.Errorf("got %d", got)
	}
	in.MinOOMScore = 0
	if got := *spec(t, in).Process.OOMScoreAdj; got != 0 {
		t.Errorf("not clamped: %d", got)
	}
}

func TestSeccomp(t *testing.T) {
	profile := func(p *api.SecurityProfile, privileged bool) *specs.LinuxSeccomp {
		return spec(t, input(func(c *api.ContainerConfig) {
			c.Linux.SecurityContext.Seccomp, c.Linux.SecurityContext.Privileged = p, privileged
		})).Linux.Seccomp
	}
	runtime := &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}
	if profile(nil, false) != nil || profile(&api.SecurityProfile{ProfileType: api.SecurityProfile_Unconfined}, false) != nil || profile(runtime, true) != nil {
		t.Error("an unexpected profile")
	}
	if p := profile(runtime, false); p == nil || p.DefaultAction == specs.ActAllow {
		t.Errorf("the default profile: %v", p)
	}
}

// FuzzMake checks that a specification for arbitrary input can be encoded and has a command. Its mounts must be sorted by their depth.
func FuzzMake(f *testing.F) {
	f.Add("/x", "arg", "A=B", "/data", "CHOWN", int64(1<<20))
	f.Fuzz(func(t *testing.T, command, arg, env, mount, capability string, memory int64) {
		in := input(func(c *api.ContainerConfig) {
			c.Command, c.Args = []string{command}, []string{arg}
			c.Envs = []*api.KeyValue{{Key: env, Value: []byte(arg)}}
			c.Mounts = []*api.Mount{{ContainerPath: "/" + mount, HostPath: "/h"}}
			c.Linux.SecurityContext.Capabilities = &api.Capability{AddCapabilities: []string{capability}}
			c.Linux.Resources = &api.LinuxContainerResources{MemoryLimitInBytes: memory}
		})
		s, err := NewSpec(in)
		if err != nil {
			return
		}
		if len(s.Process.Args) == 0 {
			t.Error("no command")
		}
		for i := 1; i < len(s.Mounts); i++ {
			if mountDepth(s.Mounts[i-1]) > mountDepth(s.Mounts[i]) {
				t.Errorf("%s before %s", s.Mounts[i-1].Destination, s.Mounts[i].Destination)
			}
		}
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
	})
}

// TestLabels checks that the specification contains the SELinux labels.
func TestLabels(t *testing.T) {
	in := input(nil)
	in.ProcessLabel, in.MountLabel = "u:r:container_t:s0:c1,c2", "u:object_r:container_file_t:s0:c1,c2"
	if s := spec(t, in); s.Process.SelinuxLabel != in.ProcessLabel || s.Linux.MountLabel != in.MountLabel {
		t.Errorf("labels %q, %q", s.Process.SelinuxLabel, s.Linux.MountLabel)
	}
	if s := spec(t, input(nil)); s.Process.SelinuxLabel != "" || s.Linux.MountLabel != "" {
		t.Errorf("without labels: %q, %q", s.Process.SelinuxLabel, s.Linux.MountLabel)
	}
}

// TestRealTime checks that the annotations of a container become its scheduling policy, its I/O priority and its limits, and that an
// invalid annotation is an error.
func TestRealTime(t *testing.T) {
	with := func(annotations map[string]string) Input {
		return input(func(c *api.ContainerConfig) { c.Annotations = annotations })
	}
	s := spec(t, with(map[string]string{keys.ContainerScheduler: "FIFO priority=7", keys.ContainerIOPriority: "realtime 3",
		keys.ContainerLockedMemory: "4096", keys.ContainerBusyLimit: "1s", keys.ContainerBudget: "300ms"}))
	p, budget := s.Process, s.Linux.Resources.CPU.RealtimeRuntime
	if p.Scheduler == nil || p.Scheduler.Policy != specs.SchedFIFO || p.Scheduler.Priority != 7 || len(p.Scheduler.Flags) != 0 ||
		p.IOPriority == nil || *p.IOPriority != (specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_RT, Priority: 3}) || budget == nil || *budget != 300000 {
		t.Errorf("got %+v, %+v, budget %v", p.Scheduler, p.IOPriority, budget)
	}
	want := []specs.POSIXRlimit{{Type: "RLIMIT_RTPRIO"}, {Type: "RLIMIT_RTTIME", Soft: 1e6, Hard: 1e6}, {Type: "RLIMIT_MEMLOCK", Soft: 4096, Hard: 4096}}
	if !slices.Equal(p.Rlimits, want) {
		t.Errorf("limits %+v", p.Rlimits)
	}
	s = spec(t, with(map[string]string{keys.ContainerScheduler: "DEADLINE runtime=1ms period=4ms"}))
	if d := s.Process.Scheduler; d.Policy != specs.SchedDeadline || d.Runtime != 1e6 || d.Deadline != 4e6 || d.Period != 4e6 ||
		!slices.Equal(d.Flags, []specs.LinuxSchedulerFlag{specs.SchedFlagResetOnFork}) || len(s.Process.Rlimits) != 1 {
		t.Errorf("got %+v, limits %+v", d, s.Process.Rlimits)
	}
	if s = spec(t, with(nil)); s.Process.Scheduler != nil || s.Process.IOPriority != nil || s.Process.Rlimits != nil {
		t.Errorf("without annotations: %+v", s.Process)
	}
	for key, value := range map[string]string{keys.ContainerScheduler: "FIFO", keys.ContainerIOPriority: "", keys.ContainerLockedMemory: "much",
		keys.ContainerBusyLimit: "long", keys.ContainerBudget: "1"} {
		if _, err := NewSpec(with(map[string]string{key: value})); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%q: %v", key, value, err)
		}
	}
}
