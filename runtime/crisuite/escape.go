package crisuite

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type sandboxSecurity = api.LinuxSandboxSecurityContext

// A namespaceShape describes the namespaces that a pod shares with the host, or that its containers share.
type namespaceShape struct {
	sandbox func(*sandboxSecurity)
	pid     api.NamespaceMode
}

// escapeShapes returns the shapes that testEscape tests.
func escapeShapes() map[string]namespaceShape {
	return map[string]namespaceShape{
		"plain":      {nil, api.NamespaceMode_CONTAINER},
		"shared-pid": {func(s *sandboxSecurity) { s.NamespaceOptions.Pid = api.NamespaceMode_POD }, api.NamespaceMode_POD},
		"host-pid":   {func(s *sandboxSecurity) { s.NamespaceOptions.Pid = api.NamespaceMode_NODE }, api.NamespaceMode_NODE},
		"host-ipc":   {func(s *sandboxSecurity) { s.NamespaceOptions.Ipc = api.NamespaceMode_NODE }, api.NamespaceMode_CONTAINER},
		"host-net":   {func(s *sandboxSecurity) { s.NamespaceOptions.Network = api.NamespaceMode_NODE }, api.NamespaceMode_CONTAINER},
	}
}

// An allowance contains the maximum privileges of a process of a pod.
type allowance struct {
	uid      string
	caps     string // CapEff; CapBnd must be equal to it
	seccomp  string
	noNew    string
	oomScore int32
	root     bool // whether the process is root in a user namespace of the pod
}

// The default capabilities, and no capabilities.
const (
	defaultCaps = "00000000a80425fb"
	noCaps      = "0000000000000000"
)

// testEscape checks from the host that no process of a pod has more privileges than allowed: the
// processes of containers, commands in containers, and the pod's init. It tests pods of every
// shape. Init containers and sidecars are ordinary containers for a runtime.
func testEscape(t *testing.T, b *bench) {
	for name, s := range escapeShapes() {
		t.Run(name, func(t *testing.T) {
			b := &bench{
				T: t, Subject: b.Subject, ctx: t.Context(), logs: t.TempDir(), uid: b.uid + "-" + name,
			}
			t.Cleanup(b.removeSandboxes)
			b.testShape(s)
		})
	}
}

func (b *bench) testShape(s namespaceShape) {
	cfg := b.podConfig(func(c *api.PodSandboxConfig) {
		if s.sandbox != nil {
			s.sandbox(c.Linux.SecurityContext)
		}
	})
	pod := b.runPod(cfg)
	for name, c := range map[string]struct {
		security *api.LinuxContainerSecurityContext
		allowed  allowance
	}{
		"default": {&api.LinuxContainerSecurityContext{}, allowance{"0", defaultCaps, "0", "0", 500, false}},
		"tight": {&api.LinuxContainerSecurityContext{
			NoNewPrivs: true, RunAsUser: &api.Int64Value{Value: 1234}, Capabilities: &api.Capability{DropCapabilities: []string{"ALL"}},
			Seccomp: &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault},
		}, allowance{"1234", noCaps, "2", "1", 700, false}},
	} {
		cc := b.containerConfig(name, "wait")
		c.security.NamespaceOptions = &api.NamespaceOption{Pid: s.pid}
		c.security.MaskedPaths = []string{"/proc/kcore", "/sys/firmware", "/proc/keys"}
		c.security.ReadonlyPaths = []string{"/proc/sys", "/proc/irq"}
		cc.Linux.SecurityContext, cc.Linux.Resources.OomScoreAdj = c.security, int64(c.allowed.oomScore)
		id := b.create(pod, cfg, cc)
		b.start(id)
		b.awaitLog(cc, "waiting")
		b.expectAllowed("the container "+name, b.containerPID(id), c.allowed)
		b.expectPaths(name, b.containerPID(id), c.security.MaskedPaths, c.security.ReadonlyPaths)
		b.expectExec(id, name, c.allowed)
		b.expectCommand(id, name, c.allowed)
	}
	if s.pid == api.NamespaceMode_POD {
		init := b.initPID(b.containerPID(b.anyContainer()))
		b.expectAllowed("the pod's init", init, allowance{"65535", noCaps, "2", "1", -998, false})
		b.expectPaths("the pod's init", init, []string{"/proc/kcore", "/proc/keys"}, []string{"/proc/sys", "/proc/irq"})
		if f := mountOptions(b, init, "/"); !slices.Contains(f, "ro") {
			b.Errorf("the root of the pod's init is %v", f)
		}
	}
}

// anyContainer returns the ID of any container of this test.
func (b *bench) anyContainer() string {
	list := must(b.Runtime.ListContainers(b.ctx, &api.ListContainersRequest{
		Filter: &api.ContainerFilter{LabelSelector: map[string]string{"test": b.uid}},
	}))(b)
	return list.Containers[0].Id
}

// containerPID returns the PID of a container's first process in the PID namespace of the test.
func (b *bench) containerPID(id string) int {
	b.Helper()
	st := must(b.Runtime.ContainerStatus(b.ctx, &api.ContainerStatusRequest{ContainerId: id, Verbose: true}))(b)
	for _, text := range st.Info {
		var info struct{ Pid int }
		if json.Unmarshal([]byte(text), &info) == nil && info.Pid > 1 {
			if b.Process != nil {
				return b.Process(b, info.Pid)
			}
			return info.Pid
		}
	}
	b.Fatalf("no PID in %v", st.Info)
	return 0
}

// initPID returns the PID of the first process in the PID namespace of another process.
func (b *bench) initPID(pid int) int {
	b.Helper()
	want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		b.Fatal(err)
	}
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		if ns, _ := os.Readlink(p + "/ns/pid"); ns != want {
			continue
		}
		n, _ := strconv.Atoi(filepath.Base(p))
		if ids := strings.Fields(statusOf(b, n)["NSpid"]); len(ids) > 0 && ids[len(ids)-1] == "1" {
			return n
		}
	}
	b.Fatal("the PID namespace has no first process")
	return 0
}

// statusOf returns the fields of /proc/<pid>/status.
func statusOf(b *bench, pid int) map[string]string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil && b.Context().Err() == nil && !os.IsNotExist(err) {
		b.Fatal(err)
	}
	return statusFields(string(raw))
}

func statusFields(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		k, v, _ := strings.Cut(line, ":")
		out[k] = strings.TrimSpace(v)
	}
	return out
}

// expectAllowed checks the privileges of a process from the host.
func (b *bench) expectAllowed(what string, pid int, a allowance) {
	b.Helper()
	b.expectStatus(what, statusOf(b, pid), b.onHost(a))
	b.expectUsers(what, pid)
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil {
		b.Fatal(err)
	}
	b.expectScore(what, strings.TrimSpace(string(raw)), a)
	b.expectDescriptors(what, pid)
	if place := cgroupsOf(b, pid); !strings.Contains(place, b.CgroupParent+"/") {
		b.Errorf("%s is not in a cgroup of its pod:\n%s", what, place)
	}
	for _, ns := range []string{"mnt"} {
		own, err1 := os.Readlink("/proc/self/ns/" + ns)
		its, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, ns))
		if err1 != nil || err2 != nil || own == its {
			b.Errorf("%s shares the host's %s namespace: %v, %v", what, ns, err1, err2)
		}
	}
}

func (b *bench) expectStatus(what string, st map[string]string, a allowance) {
	b.Helper()
	for field, want := range map[string]string{
		"Uid": strings.Join([]string{a.uid, a.uid, a.uid, a.uid}, "\t"), "CapEff": a.effectiveCapabilities(),
		"CapPrm": a.effectiveCapabilities(), "CapBnd": a.caps, "CapInh": noCaps, "CapAmb": noCaps,
		"Seccomp": a.seccomp, "NoNewPrivs": a.noNew,
	} {
		if st[field] != want {
			b.Errorf("%s has %s %q, want %q", what, field, st[field], want)
		}
	}
}

// effectiveCapabilities returns the expected effective capabilities. A user other than root has none.
func (a allowance) effectiveCapabilities() string {
	if !a.root && a.uid != "0" {
		return noCaps
	}
	return a.caps
}

// expectScore checks the OOM score adjustment. If the expected value is negative, any value from
// there up to 0 is accepted, because the host may not permit the expected value.
func (b *bench) expectScore(what, got string, a allowance) {
	b.Helper()
	if n, err := strconv.Atoi(got); err != nil || n != int(a.oomScore) && (a.oomScore >= 0 || n < int(a.oomScore) || n > 0) {
		b.Errorf("%s has oom_score_adj %s, want %d", what, got, a.oomScore)
	}
}

// expectDescriptors checks that a process has no open file or directory of the host.
func (b *bench) expectDescriptors(what string, pid int) {
	b.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) < 3 {
		b.Errorf("%s has %d descriptors: %v", what, len(fds), err)
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil {
			continue // closed meanwhile
		}
		if !allowedDescriptor(target) {
			b.Errorf("%s has descriptor %s open: %s", what, filepath.Base(fd), target)
		}
	}
}

// allowedDescriptor reports whether a file descriptor with this target is allowed: a pipe, an
// eventfd, an eventpoll, a pidfd, /dev/null, or a cgroup file. Go programs read their CPU limit
// periodically from a cgroup file.
func allowedDescriptor(target string) bool {
	for _, prefix := range []string{"pipe:", "anon_inode:[event", "anon_inode:[pidfd]", "/dev/null", "/sys/fs/cgroup/"} {
		if strings.HasPrefix(target, prefix) {
			return true
		}
	}
	return false
}

// mountOptions returns the options of the topmost mount at a mount point in the mount namespace of
// a process, or nil if there is none.
func mountOptions(b *bench, pid int, at string) (opts []string) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 5 && f[4] == at {
			opts = strings.Split(f[5], ",") // the last line is the topmost mount
		}
	}
	return opts
}

// expectPaths checks that masked and readonly paths are mount points. It skips paths that do not
// exist in this kernel.
func (b *bench) expectPaths(what string, pid int, masked, readonly []string) {
	b.Helper()
	for _, p := range slices.Concat(masked, readonly) {
		if _, err := os.Stat(p); err != nil {
			continue
		}
		opts := mountOptions(b, pid, p)
		if opts == nil || slices.Contains(readonly, p) && !slices.Contains(opts, "ro") {
			b.Errorf("%s can access %s: the mount has the options %v", what, p, opts)
		}
	}
	if f := mountOptions(b, pid, "/sys"); !slices.Contains(f, "ro") {
		b.Errorf("%s has /sys %v", what, f)
	}
}

// expectCommand checks the privileges of a command in a container from the host.
func (b *bench) expectCommand(id, name string, a allowance) {
	b.Helper()
	ctx, stop := context.WithCancel(b.ctx)
	done := make(chan struct{})
	defer func() { stop(); <-done }()
	go func() {
		defer close(done)
		b.Runtime.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "ignore"}}) // ends when ctx is canceled
	}()
	container, pid := b.containerPID(id), 0
	b.waitUntil("the command runs in "+name, func() bool {
		pid = findProcess(container, "/prog\x00ignore\x00")
		return pid > 0 && ignoresTerm(b, pid) // its start is complete
	})
	b.expectAllowed("a command in "+name, pid, a)
	if own, its := cgroupsOf(b, container), cgroupsOf(b, pid); own != its {
		b.Errorf("a command in %s is in other cgroups than its container, which is in\n%s:\n%s", name, own, its)
	}
}

// ignoresTerm reports whether a process ignores SIGTERM.
func ignoresTerm(b *bench, pid int) bool {
	b.Helper()
	mask := statusOf(b, pid)["SigIgn"]
	n, err := strconv.ParseUint(mask, 16, 64)
	if err != nil && mask != "" { // empty if the process has ended
		b.Fatal(err)
	}
	return n&(1<<(syscall.SIGTERM-1)) != 0
}

// findProcess returns the PID of the process with this command line in the mount namespace of
// another process, or 0 if there is none.
func findProcess(other int, cmdline string) int {
	want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", other))
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		ns, _ := os.Readlink(p + "/ns/mnt")
		if b, _ := os.ReadFile(p + "/cmdline"); err == nil && ns == want && string(b) == cmdline {
			pid, _ := strconv.Atoi(filepath.Base(p))
			return pid
		}
	}
	return 0
}

// cgroupsOf returns the content of /proc/<pid>/cgroup.
func cgroupsOf(b *bench, pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// expectExec checks the privileges of a command in a container from the command itself.
func (b *bench) expectExec(id, name string, a allowance) {
	b.Helper()
	run := func(args ...string) string {
		out := must(b.Runtime.ExecSync(b.ctx, &api.ExecSyncRequest{
			ContainerId: id, Cmd: append([]string{"/prog"}, args...), Timeout: 60,
		}))(b)
		return strings.TrimSpace(string(out.Stdout))
	}
	what := "a command in " + name
	b.expectStatus(what, statusFields(run("read", "/proc/self/status")), a)
	b.expectScore(what, run("read", "/proc/self/oom_score_adj"), a)
	for line := range strings.Lines(run("fds")) {
		target := strings.TrimSpace(line)
		if !allowedDescriptor(target) {
			b.Errorf("%s has open: %s", what, target)
		}
	}
	if out := run("opens", "/proc/sys/kernel/core_pattern"); !strings.Contains(out, "read-only") && !strings.Contains(out, "denied") {
		b.Errorf("%s: /proc/sys/kernel/core_pattern: %s", what, out)
	}
	if out := run("opens", "/proc/1/root/proc/sys/kernel/core_pattern"); strings.Contains(out, "<nil>") {
		b.Errorf("%s: core_pattern through /proc/1/root: %s", what, out)
	}
}
