package crisuite

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sortGroups sorts the groups in the output of prog's verb "id".
func sortGroups(out string) string {
	head, list, ok := strings.Cut(strings.TrimSpace(out), "[")
	if !ok {
		return out
	}
	groups := strings.Fields(strings.TrimSuffix(list, "]"))
	slices.SortFunc(groups, func(a, b string) int {
		return len(a) - len(b) + strings.Compare(a, b)*b2i(len(a) == len(b))
	})
	return head + "[" + strings.Join(slices.Compact(groups), " ") + "]"
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func testMounts(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "in"), []byte("from the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := b.containerConfig("rw", "read", "/data/in", "write", "/data/out", "from inside", "read", "/deep/er/in")
	c.Mounts = []*api.Mount{
		{ContainerPath: "/deep/er", HostPath: dir, Readonly: true}, {ContainerPath: "/data", HostPath: dir},
		{ContainerPath: "/new", HostPath: filepath.Join(dir, "made")},
	}
	if out, _ := b.runForOutput(pod, cfg, c); out != "from the host\nfrom the host\n" {
		t.Errorf("got %q", out)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "out")); string(got) != "from inside" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
		t.Error(err)
	}
	c = b.containerConfig("ro", "write", "/data/out2", "x")
	c.Mounts = []*api.Mount{{ContainerPath: "/data", HostPath: dir, Readonly: true}}
	if out, st := b.runForOutput(pod, cfg, c); st.ExitCode == 0 || !strings.Contains(out, "read-only") {
		t.Errorf("wrote to a read-only mount: %q", out)
	}
}

func testReadonlyRoot(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	for _, ro := range []bool{false, true} {
		c := b.containerConfig(fmt.Sprint("ro-", ro), "write", "/file", "x")
		c.Linux.SecurityContext.ReadonlyRootfs = ro
		if _, st := b.runForOutput(pod, cfg, c); (st.ExitCode != 0) != ro {
			t.Errorf("read-only %v: exit code %d", ro, st.ExitCode)
		}
	}
	// A container cannot see the files of another container.
	if _, st := b.runForOutput(pod, cfg, b.containerConfig("other", "read", "/file")); st.ExitCode == 0 {
		t.Error("containers share their root file system")
	}
}

// processStatus runs a container and returns its /proc/self/status by field.
func (b *bench) processStatus(pod string, cfg *api.PodSandboxConfig, c *api.ContainerConfig) map[string]string {
	b.Helper()
	c.Args = []string{"read", "/proc/self/status"}
	out, st := b.runForOutput(pod, cfg, c)
	if st.ExitCode != 0 {
		b.Fatalf("exit code %d: %s", st.ExitCode, st.Message)
	}
	fields := map[string]string{}
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(line, ":")
		fields[k] = strings.TrimSpace(v)
	}
	return fields
}

func testSecurity(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("plain")
	st := b.processStatus(pod, cfg, c)
	if st["NoNewPrivs"] != "0" || st["Seccomp"] != "0" || st["CapEff"] != "00000000a80425fb" {
		t.Errorf("by default: NoNewPrivs %s, Seccomp %s, CapEff %s", st["NoNewPrivs"], st["Seccomp"], st["CapEff"])
	}
	c = b.containerConfig("tight")
	c.Linux.SecurityContext.NoNewPrivs = true
	c.Linux.SecurityContext.Seccomp = &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault}
	c.Linux.SecurityContext.Capabilities = &api.Capability{AddCapabilities: []string{"NET_ADMIN"}, DropCapabilities: []string{"ALL"}}
	c.Linux.SecurityContext.MaskedPaths = []string{"/proc/cpuinfo"}
	st = b.processStatus(pod, cfg, c)
	if st["NoNewPrivs"] != "1" || st["Seccomp"] != "2" || st["CapEff"] != "0000000000001000" {
		t.Errorf("tight: NoNewPrivs %s, Seccomp %s, CapEff %s", st["NoNewPrivs"], st["Seccomp"], st["CapEff"])
	}
	c = b.containerConfig("masked", "read", "/proc/cpuinfo")
	c.Linux.SecurityContext.MaskedPaths = []string{"/proc/cpuinfo"}
	if out, _ := b.runForOutput(pod, cfg, c); strings.TrimSpace(out) != "" {
		t.Errorf("a masked path shows %q", out)
	}
}

func testPrivileged(t *testing.T, b *bench) {
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "ls", "/dev")
	c.Linux.SecurityContext.Privileged = true
	out, st := b.runForOutput(pod, cfg, c)
	if st.ExitCode != 0 || !strings.Contains(out, "kmsg") {
		t.Errorf("exit code %d, devices %q", st.ExitCode, out)
	}
}

func testNamespaces(t *testing.T, b *bench) {
	cfg := b.podConfig(func(c *api.PodSandboxConfig) {
		c.Linux.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "33"}
	})
	pod := b.runPod(cfg)
	out, _ := b.runForOutput(pod, cfg, b.containerConfig("main", "hostname", "pid", "ls", "/sys/class/net",
		"read", "/proc/sys/net/ipv4/ip_unprivileged_port_start"))
	if !strings.HasPrefix(out, "pod-0\n1\n") || !strings.Contains(out, "lo\n") || !strings.HasSuffix(out, "\n33\n") {
		t.Errorf("got %q", out)
	}
	// Containers of a pod share /dev/shm with each other, but not with other pods.
	if _, st := b.runForOutput(pod, cfg, b.containerConfig("writer", "write", "/dev/shm/x", "shared")); st.ExitCode != 0 {
		t.Errorf("write to /dev/shm: %v", st)
	}
	if out, _ := b.runForOutput(pod, cfg, b.containerConfig("reader", "read", "/dev/shm/x")); out != "shared\n" {
		t.Errorf("got %q", out)
	}
	host := b.podConfig(func(c *api.PodSandboxConfig) {
		c.Metadata.Attempt = 1
		c.Linux.SecurityContext.NamespaceOptions.Network = api.NamespaceMode_NODE
		c.Linux.SecurityContext.NamespaceOptions.Ipc = api.NamespaceMode_NODE
	})
	id := b.runPod(host)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	c := b.containerConfig("host", "hostname")
	c.LogPath = "host/0.log"
	if out, _ := b.runForOutput(id, host, c); out != name+"\n" {
		t.Errorf("on the host's network: %q", out)
	}
}

// testSharedProcesses checks that containers that share a PID namespace see the processes of each
// other, and that all processes of a container end with its first process.
func testSharedProcesses(t *testing.T, b *bench) {
	cfg := b.podConfig(func(c *api.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_POD
	})
	pod := b.runPod(cfg)
	shared := func(name string, args ...string) *api.ContainerConfig {
		c := b.containerConfig(name, args...)
		c.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_POD
		return c
	}
	long := shared("long", "child", "ignore")
	id := b.create(pod, cfg, long)
	b.start(id)
	b.awaitLog(long, "ignoring")
	out, st := b.runForOutput(pod, cfg, shared("looker", "pid", "read", "/proc/1/cmdline", "ls", "/proc"))
	// The output begins with the program's own PID.
	if st.ExitCode != 0 || strings.HasPrefix(out, "1\n") || countPIDs(out) != 1+4 {
		t.Errorf("exit code %d, output %q", st.ExitCode, out)
	}
	must(b.Runtime.StopContainer(b.ctx, &api.StopContainerRequest{ContainerId: id}))(b)
	// The child process of the container must have ended, too.
	out, _ = b.runForOutput(pod, cfg, shared("after", "ls", "/proc"))
	if left := countPIDs(out); left != 2 {
		t.Errorf("%d processes, want 2: the pod's init and the process that lists them", left)
	}
	s := must(b.Runtime.PodSandboxStatus(b.ctx, &api.PodSandboxStatusRequest{PodSandboxId: pod}))(b)
	if s.Status.State != api.PodSandboxState_SANDBOX_READY {
		t.Errorf("state of the sandbox: %v", s.Status)
	}
}

// testSharedProcessesRoot checks that a container cannot access the host or change files through
// /proc/1/root of a shared PID namespace.
func testSharedProcessesRoot(t *testing.T, b *bench) {
	cfg := b.podConfig(func(c *api.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_POD
	})
	pod := b.runPod(cfg)
	const pattern = "/proc/1/root/proc/sys/kernel/core_pattern"
	for name, c := range map[string]struct {
		change func(*api.LinuxContainerSecurityContext)
		args   []string
		want   string
	}{
		"root":   {nil, []string{"opens", pattern}, "permission denied"},
		"tracer": {addPtrace, []string{"opens", pattern}, b.hostOrOwn("read-only file system", "permission denied")},
		"writer": {addPtrace, []string{"write", "/proc/1/root/new", "x"}, "read-only file system"},
		"same":   {setSameUser, []string{"opens", pattern}, "permission denied"},
	} {
		cc := b.containerConfig(name, c.args...)
		cc.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_POD
		if c.change != nil {
			c.change(cc.Linux.SecurityContext)
		}
		if out, _ := b.runForOutput(pod, cfg, cc); !strings.Contains(out, c.want) {
			t.Errorf("%s: %v gives %q, want %s", name, c.args, out, c.want)
		}
	}
}

// setSameUser sets the UID of the pod's init for a container.
func setSameUser(s *api.LinuxContainerSecurityContext) {
	s.RunAsUser, s.Capabilities = &api.Int64Value{Value: 65535}, &api.Capability{DropCapabilities: []string{"ALL"}}
}

// addPtrace adds CAP_SYS_PTRACE to a container, so that only masked and read-only mounts protect
// the host.
func addPtrace(s *api.LinuxContainerSecurityContext) {
	s.Capabilities = &api.Capability{AddCapabilities: []string{"SYS_PTRACE"}}
}

// countPIDs returns the number of PIDs in a listing of /proc.
func countPIDs(list string) (n int) {
	for _, f := range strings.Fields(list) {
		if strings.Trim(f, "0123456789") == "" {
			n++
		}
	}
	return n
}

// testHostProcesses checks that the other processes of a container in the host's PID namespace are
// killed when its first process has ended.
func testHostProcesses(t *testing.T, b *bench) {
	if b.Users != nil {
		t.Skip("not in a user namespace")
	}
	cfg := b.podConfig()
	pod := b.runPod(cfg)
	c := b.containerConfig("main", "pid", "orphan", "ignore")
	c.Linux.SecurityContext.NamespaceOptions.Pid = api.NamespaceMode_NODE
	out, st := b.runForOutput(pod, cfg, c)
	if st.ExitCode != 0 || strings.HasPrefix(out, "1\n") {
		t.Errorf("exit code %d, printed %q", st.ExitCode, out)
	}
}

func testFiles(t *testing.T, b *bench) {
	cfg := b.podConfig(func(c *api.PodSandboxConfig) {
		c.DnsConfig = &api.DNSConfig{
			Servers: []string{"10.0.0.10"}, Searches: []string{"a.local", "b.local"}, Options: []string{"ndots:5"},
		}
	})
	pod := b.runPod(cfg)
	out, _ := b.runForOutput(pod, cfg, b.containerConfig("main", "read", "/etc/hostname", "read", "/etc/resolv.conf"))
	if out != "pod-0\nsearch a.local b.local\nnameserver 10.0.0.10\noptions ndots:5\n" {
		t.Errorf("got %q", out)
	}
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("10.1.2.3 own"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := b.containerConfig("own", "read", "/etc/hosts")
	c.Mounts = []*api.Mount{{ContainerPath: "/etc/hosts", HostPath: hosts}}
	if out, _ := b.runForOutput(pod, cfg, c); out != "10.1.2.3 own\n" {
		t.Errorf("got %q", out)
	}
}
