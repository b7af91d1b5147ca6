package ocispec

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	imagespec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/growthtest"
)

// The tests in this file cover differences from containerd that islet had before.

// TestArgsEmptyEntrypoint checks that an ENTRYPOINT of one empty word is ignored.
func TestArgsEmptyEntrypoint(t *testing.T) {
	for want, c := range map[string]struct {
		entrypoint, cmd, args []string
	}{
		"c":    {[]string{""}, []string{"c"}, nil},
		"a":    {[]string{""}, []string{"c"}, []string{"a"}},
		" x c": {[]string{"", "x"}, []string{"c"}, nil},
		"":     {[]string{""}, nil, nil},
	} {
		got, err := mergeArgs(&api.ContainerConfig{Args: c.args}, imagespec.ImageConfig{Entrypoint: c.entrypoint, Cmd: c.cmd})
		if strings.Join(got, " ") != want || (err == nil) == (want == "") {
			t.Errorf("%q: %q, %v", c, got, err)
		}
	}
}

// TestEnvWithoutValue checks an entry without "=" in the ENV of an image. It removes the variable, because runc rejects such an entry. The
// test also checks that many variables do not take quadratic time.
func TestEnvWithoutValue(t *testing.T) {
	in := input(nil)
	in.Image.Env = []string{"A=1", "B", "A", "PATH", "C=", "A=2", "D=x=y", ""}
	want := []string{"A=2", "HOSTNAME=h", "C=", "D=x=y"}
	got := spec(t, in).Process.Env
	if slices.Sort(want); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("got %q, want %q", got, want)
	}
	growthtest.Linear(t, 5_000, func(n int) {
		in.Image.Env = nil
		for i := range n {
			in.Image.Env = append(in.Image.Env, fmt.Sprintf("V%d=", i))
		}
		if got := len(spec(t, in).Process.Env); got != n+2 {
			t.Errorf("%d variables of %d", got, n)
		}
	})
}

// TestEnvHostname checks that HOSTNAME is the hostname of the pod, or the name of the node if the pod has none.
func TestEnvHostname(t *testing.T) {
	for pod, want := range map[string]string{"": "HOSTNAME=node", "h": "HOSTNAME=h"} {
		in := input(nil)
		in.Sandbox.Hostname, in.NodeName = pod, "node"
		if got := spec(t, in).Process.Env; !slices.Contains(got, want) {
			t.Errorf("got %q, want %s", got, want)
		}
	}
}

// at returns the mounts of a specification by their destination.
func at(t *testing.T, in Input) map[string]specs.Mount {
	t.Helper()
	out := map[string]specs.Mount{}
	for _, m := range spec(t, in).Mounts {
		if _, twice := out[m.Destination]; twice {
			t.Errorf("%s is mounted twice", m.Destination)
		}
		out[m.Destination] = m
	}
	return out
}

// TestMountsOfTheHost checks pods that mount the host's /sys, /dev or /proc, such as cAdvisor or a device plugin. Default mounts must not
// cover parts of these mounts.
func TestMountsOfTheHost(t *testing.T) {
	for own, gone := range map[string][]string{
		"/sys": {"/sys/fs/cgroup"}, "/sys/fs/": {"/sys/fs/cgroup"}, "/dev": {"/dev/pts", "/dev/mqueue"}, "/proc": nil, "/": nil, "/devices": nil, "/etc": nil,
	} {
		in := input(func(c *api.ContainerConfig) {
			c.Mounts = []*api.Mount{{ContainerPath: own, HostPath: "/host"}}
		})
		in.Files = Files{Hosts: "/sandbox/hosts", Shm: "/sandbox/shm"}
		mounts := at(t, in)
		for _, usual := range []string{"/proc", "/dev", "/dev/pts", "/dev/mqueue", "/sys", "/sys/fs/cgroup", "/etc/hosts", "/dev/shm"} {
			if _, there := mounts[usual]; there == slices.Contains(gone, usual) {
				t.Errorf("with a mount at %s, %s is mounted: %t", own, usual, there)
			}
		}
		if m := mounts[filepath.Clean(own)]; m.Source != "/host" {
			t.Errorf("the mount at %s is %v", own, m)
		}
	}
}

// TestMountsOfVolumes checks that image volumes are mounted before all other mounts.
func TestMountsOfVolumes(t *testing.T) {
	in := input(func(c *api.ContainerConfig) { c.Mounts = []*api.Mount{{ContainerPath: "/x/own", HostPath: "/host"}} })
	in.Volumes = []Volume{{"/a/b/c", "/v/1"}, {"/a/b/c/d", "/v/2"}}
	got := spec(t, in).Mounts
	for i, want := range in.Volumes {
		if m := got[i]; m.Destination != want.Path || m.Source != want.Source || m.Type != "bind" || !slices.Contains(m.Options, "rw") ||
			!slices.Contains(m.Options, "rprivate") {
			t.Errorf("mount %d is %v, want %v", i, m, want)
		}
	}
}

// TestMountsOfCgroups checks the cgroup mount of a container in the host's cgroup namespace. It is a bind mount, because a cgroup2 mount
// would change the mount options of the host.
func TestMountsOfCgroups(t *testing.T) {
	for _, c := range []struct {
		v2, privileged bool
		kind, mode     string
	}{{false, false, "cgroup", "ro"}, {false, true, "cgroup", "rw"}, {true, false, "cgroup", "ro"}, {true, true, "bind", "rw"}} {
		in := input(func(ctr *api.ContainerConfig) { ctr.Linux.SecurityContext.Privileged = c.privileged })
		in.CgroupV2 = c.v2
		m := at(t, in)["/sys/fs/cgroup"]
		if m.Type != c.kind || !slices.Contains(m.Options, c.mode) || c.kind == "bind" && m.Source != "/sys/fs/cgroup" {
			t.Errorf("%+v: %v", c, m)
		}
		own := slices.ContainsFunc(spec(t, in).Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.CgroupNamespace })
		if c.v2 && own == (m.Type == "bind") {
			t.Errorf("%+v: a cgroup namespace: %t, %v", c, own, m)
		}
	}
}

// TestDevices checks that the path of a device may be a symlink or a directory. The device has the requested path in the container, also in
// a privileged one.
func TestDevices(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for _, d := range []string{"snd", "snd/by-path", "snd/pts"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, minor := range map[string]uint32{"null": 3, "snd/zero": 5, "snd/by-path/full": 7, "snd/pts/0": 8, "snd/console": 9} {
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o660, int(unix.Mkdev(1, minor))); err != nil {
			t.Skip("device nodes cannot be created:", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "snd", "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "snd/link"} {
		if err := os.Symlink(filepath.Join(dir, "null"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	host := []specs.LinuxDevice{{Path: "/dev/host", Type: "c"}, {Path: "/dev/x", Type: "c", Minor: 99}}
	for _, c := range []struct{ name, want string }{{"null", "/dev/x 3"}, {"link", "/dev/x 3"}, {"snd", "/dev/x/by-path/full 7|/dev/x/zero 5"}} {
		for _, privileged := range []bool{false, true} {
			in := input(func(ctr *api.ContainerConfig) {
				ctr.Devices = []*api.Device{{HostPath: filepath.Join(dir, c.name), ContainerPath: "/dev/x/", Permissions: "rw"}}
				ctr.Linux.SecurityContext.Privileged = privileged
			})
			in.Host.Devices = host
			s := spec(t, in)
			var got, rules []string
			for _, d := range s.Linux.Devices {
				got = append(got, fmt.Sprintf("%s %d", d.Path, d.Minor))
			}
			for _, r := range s.Linux.Resources.Devices {
				rules = append(rules, fmt.Sprint(r.Allow, r.Access))
			}
			want, allowed := c.want, 1+strings.Count(c.want, "|")
			if privileged {
				want, allowed = want+"|/dev/host 0", 0
				if c.name == "snd" {
					want += "|/dev/x 99"
				}
			}
			wantRules := slices.Concat([]string{fmt.Sprint(privileged, "rwm")}, slices.Repeat([]string{"truerw"}, allowed))
			if strings.Join(got, "|") != want || !slices.Equal(rules, wantRules) {
				t.Errorf("%s, privileged %t: %q with %q, want %q with %q", c.name, privileged, got, rules, want, wantRules)
			}
		}
	}
	for _, bad := range []string{"none", "snd/file"} {
		in := input(func(ctr *api.ContainerConfig) {
			ctr.Devices = []*api.Device{{HostPath: filepath.Join(dir, bad), ContainerPath: "/dev/x"}}
		})
		if _, err := NewSpec(in); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestDefaults checks the specification of a container without settings, and the effect of each setting.
func TestDefaults(t *testing.T) {
	s := spec(t, input(nil))
	if s.Process.Rlimits != nil || s.Linux.Sysctl != nil || s.Hostname != "" || s.Annotations != nil ||
		s.Linux.RootfsPropagation != "" || s.Hooks != nil {
		t.Errorf("unexpected settings: %+v", s)
	}
	if s.Process.NoNewPrivileges || s.Process.Cwd != "/" || s.Root.Path != "rootfs" || s.Root.Readonly || s.Process.Terminal ||
		s.Process.ApparmorProfile != "" {
		t.Errorf("process %+v, root %+v", s.Process, s.Root)
	}
	if c := s.Process.Capabilities; len(c.Ambient)+len(c.Inheritable) > 0 {
		t.Errorf("capabilities %+v", c)
	}
	if _, run := at(t, input(nil))["/run"]; run {
		t.Error("/run of the image is hidden")
	}
	for _, privileged := range []bool{false, true} {
		in := input(func(c *api.ContainerConfig) {
			c.Linux.SecurityContext.Privileged, c.Linux.SecurityContext.NoNewPrivs, c.Linux.SecurityContext.ReadonlyRootfs = privileged, true, true
			c.Linux.SecurityContext.MaskedPaths, c.Linux.SecurityContext.ReadonlyPaths = []string{"/m"}, []string{"/r"}
			c.Tty = true
		})
		in.Image.WorkingDir, in.Files = "/image", Files{Hosts: "/sandbox/hosts", Shm: "/sandbox/shm"}
		s := spec(t, in)
		if !s.Process.NoNewPrivileges || !s.Root.Readonly || !s.Process.Terminal || s.Process.Cwd != "/image" ||
			(len(s.Linux.MaskedPaths)+len(s.Linux.ReadonlyPaths) == 0) != privileged {
			t.Errorf("privileged %t: %+v %+v %+v", privileged, s.Process, s.Root, s.Linux)
		}
		mounts, mode := at(t, in), map[bool]string{false: "ro", true: "rw"}[privileged]
		if !slices.Contains(mounts["/sys"].Options, mode) || !slices.Contains(mounts["/etc/hosts"].Options, "ro") ||
			!slices.Contains(mounts["/dev/shm"].Options, "rw") {
			t.Errorf("privileged %t: %v", privileged, mounts)
		}
		in.Container.WorkingDir = "/own"
		if cwd := spec(t, in).Process.Cwd; cwd != "/own" {
			t.Errorf("the working directory is %s", cwd)
		}
	}
}

// TestResources checks the conversion of resource limits. Zero means no limit.
func TestResources(t *testing.T) {
	full := &api.LinuxContainerResources{
		CpuPeriod: 50_000, CpuQuota: 25_000, CpuShares: 512, CpusetCpus: "0-1", CpusetMems: "0", MemoryLimitInBytes: 64 << 20, MemorySwapLimitInBytes: 96 << 20,
		HugepageLimits: []*api.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB"}}, Unified: map[string]string{"memory.high": "1"},
	}
	r := Resources(full, Host{})
	if *r.CPU.Period != 50_000 || *r.CPU.Quota != 25_000 || *r.CPU.Shares != 512 || r.CPU.Cpus != "0-1" || r.CPU.Mems != "0" ||
		*r.Memory.Limit != 64<<20 || *r.Memory.Swap != 96<<20 ||
		len(r.HugepageLimits) != 1 || r.HugepageLimits[0] != (specs.LinuxHugepageLimit{Pagesize: "2MB", Limit: 4 << 20}) || r.Unified["memory.high"] != "1" {
		t.Errorf("%+v %+v %+v", r.CPU, r.Memory, r)
	}
	if r := Resources(&api.LinuxContainerResources{}, Host{HugePages: true}); r.CPU.Period != nil || r.CPU.Quota != nil || r.CPU.Shares != nil || r.Memory != nil || r.HugepageLimits != nil || r.Unified != nil {
		t.Errorf("without limits: %+v %+v", r.CPU, r)
	}
	// If the host has the hugetlb controller, a limit of zero huge pages is kept.
	if r := Resources(full, Host{HugePages: true}); len(r.HugepageLimits) != 2 || r.HugepageLimits[1] != (specs.LinuxHugepageLimit{Pagesize: "1GB"}) {
		t.Errorf("huge pages: %+v", r.HugepageLimits)
	}
	if Resources(nil, Host{}) != nil {
		t.Error("limits without a configuration")
	}
}

// TestSeccompFile checks that a profile must be a regular file of limited size. The reference may have the old prefix localhost/. An error
// contains the reference.
func TestSeccompFile(t *testing.T) {
	dir := t.TempDir()
	file, bad, pipe, bomb := filepath.Join(dir, "good"), filepath.Join(dir, "bad"), filepath.Join(dir, "pipe"), filepath.Join(dir, "bomb")
	wide := `{"syscalls":[` + strings.Repeat("{},", 1_000_000) + `{}]}`
	for name, text := range map[string]string{file: `{"defaultAction": "SCMP_ACT_ERRNO"}`, bad: "{", bomb: wide} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for ref, good := range map[string]bool{file: true, "localhost/" + file: true, bad: false, bomb: false, pipe: false, "/dev/zero": false, filepath.Join(dir, "none"): false} {
		s, err := NewSpec(input(func(c *api.ContainerConfig) {
			c.Linux.SecurityContext.Seccomp = &api.SecurityProfile{ProfileType: api.SecurityProfile_Localhost, LocalhostRef: ref}
		}))
		if good && (err != nil || s.Linux.Seccomp.DefaultAction != specs.ActErrno) || !good &&
			(err == nil || !strings.Contains(err.Error(), ref)) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

// TestForeignAnnotations checks annotations of CRI-O, crun, runc and CRIU. They have no effect on the pod or the container. See
// docs/cri-o.md.
func TestForeignAnnotations(t *testing.T) {
	plain := spec(t, input(nil))
	all := map[string]string{
		"io.kubernetes.cri-o.ShmSize": "1Gi", "shm-size.crio.io": "1Gi", "io.kubernetes.cri-o.Devices": "/dev/kmsg", "devices.crio.io": "/dev/kmsg",
		"io.kubernetes.cri-o.userns-mode": "auto", "userns-mode.crio.io": "auto", "io.kubernetes.cri-o.umask": "0777", "umask.crio.io": "0777",
		"io.kubernetes.cri-o.UnifiedCgroup.x": "memory.max=max", "unified-cgroup.crio.io/x": "memory.max=max", "io.kubernetes.cri-o.cgroup2-mount-hierarchy-rw": "true",
		"cgroup2-mount-hierarchy-rw.crio.io": "true", "seccomp-profile.kubernetes.cri-o.io/POD": "r/p:1", "seccomp-profile.crio.io": "r/p:1",
		"io.kubernetes.cri-o.seccompNotifierAction": "stop", "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel": "true", "io.kubernetes.cri-o.LinkLogs": "logs",
		"io.kubernetes.cri-o.Spoofed": "true", "io.kubernetes.cri-o.PlatformRuntimePath": "/bin/sh", "cpu-quota.crio.io": "disable", "io.kubernetes.cri.rdt-class": "c",
		"io.containers.trace-syscall": "of:/x", "run.oci.keep_original_groups": "1", "run.oci.hooks.stderr": "/x", "module.wasm.image/variant": "compat",
		"org.systemd.property.MemoryMax": "1", "org.criu.config": "/x", "org.opencontainers.image.stopSignal": "SIGKILL", "bundle": "/x",
	}
	for _, pod := range []bool{false, true} {
		in := input(nil)
		in.Container.Metadata = (&api.ContainerMetadata{Name: "x"})
		if pod {
			in.Sandbox.Annotations = all
		} else {
			in.Container.Annotations = all
		}
		if s := spec(t, in); !reflect.DeepEqual(s, plain) {
			t.Errorf("of the pod: %t: %+v, want %+v", pod, s, plain)
		}
	}
}
