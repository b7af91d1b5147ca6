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

// A shape is a kind of pod: the namespaces that it shares with the host, or among its containers.
type shape struct {
	sandbox func(*sandboxSecurity)
	pid     api.NamespaceMode
}

// shapes returns the kinds of pods that testEscape tests.
func shapes() map[string]shape {
	return map[string]shape{
		"plain":      {nil, api.NamespaceMode_CONTAINER},
		"shared-pid": {func(s *sandboxSecurity) { s.NamespaceOptions.Pid = api.NamespaceMode_POD }, api.NamespaceMode_POD},
		"host-pid":   {func(s *sandboxSecurity) { s.NamespaceOptions.Pid = api.NamespaceMode_NODE }, api.NamespaceMode_NODE},
		"host-ipc":   {func(s *sandboxSecurity) { s.NamespaceOptions.Ipc = api.NamespaceMode_NODE }, api.NamespaceMode_CONTAINER},
		"host-net":   {func(s *sandboxSecurity) { s.NamespaceOptions.Network = api.NamespaceMode_NODE }, api.NamespaceMode_CONTAINER},
	}
}

// An allowance describes the greatest privileges that a pod's process may have.
type allowance struct {
	uid      string
	caps     string // CapEff; CapBnd must be equal to it
	seccomp  string
	noNew    string
	oomScore int32
	root     bool // whether the process is root in a user namespace and another user on the host
}

// The default set of capabilities, and the empty set.
const (
	usualCaps = "00000000a80425fb"
	noCaps    = "0000000000000000"
)

// testEscape checks from the host every process of pods of every shape: the containers, exec
// commands and the pod's init. Init containers and sidecars are ordinary containers for a runtime.
// No process may have more privileges than the table allows.
func testEscape(t *testing.T, b *bench) {
	for name, s := range shapes() {
		t.Run(name, func(t *testing.T) {
			b := &bench{
				T: t, Subject: b.Subject, ctx: t.Context(), logs: t.TempDir(), uid: b.uid + "-" + name,
			}
			t.Cleanup(b.clean)
			b.escape(s)
		})
	}
}

func (b *bench) escape(s shape) {
	cfg := b.pod(func(c *api.PodSandboxConfig) {
		if s.sandbox != nil {
			s.sandbox(c.Linux.SecurityContext)
		}
	})
	pod := b.runPod(cfg)
	for name, c := range map[string]struct {
		security *api.LinuxContainerSecurityContext
		allowed  allowance
	}{
		"default": {&api.LinuxContainerSecurityContext{}, allowance{"0", usualCaps, "0", "0", 500, false}},
		"tight": {&api.LinuxContainerSecurityContext{
			NoNewPrivs: true, RunAsUser: &api.Int64Value{Value: 1234}, Capabilities: &api.Capability{DropCapabilities: []string{"ALL"}},
			Seccomp: &api.SecurityProfile{ProfileType: api.SecurityProfile_RuntimeDefault},
		}, allowance{"1234", noCaps, "2", "1", 700, false}},
	} {
		cc := b.container(name, "wait")
		c.security.NamespaceOptions = &api.NamespaceOption{Pid: s.pid}
		c.security.MaskedPaths = []string{"/proc/kcore", "/sys/firmware", "/proc/keys"}
		c.security.ReadonlyPaths = []string{"/proc/sys", "/proc/irq"}
		cc.Linux.SecurityContext, cc.Linux.Resources.OomScoreAdj = c.security, int64(c.allowed.oomScore)
		id := b.create(pod, cfg, cc)
		b.start(id)
		b.awaitLog(cc, "waiting")
		b.expectAllowed("the container "+name, b.processOf(id), c.allowed)
		b.expectPaths(name, b.processOf(id), c.security.MaskedPaths, c.security.ReadonlyPaths)
		b.expectExec(id, name, c.allowed)
		b.expectCommand(id, name, c.allowed)
	}
	if s.pid == api.NamespaceMode_POD {
		init := b.firstOf(b.processOf(b.newest()))
		b.expectAllowed("the pod's init", init, allowance{"65535", noCaps, "2", "1", -998, false})
		b.expectPaths("the pod's init", init, []string{"/proc/kcore", "/proc/keys"}, []string{"/proc/sys", "/proc/irq"})
		if f := mountOptions(b, init, "/"); !slices.Contains(f, "ro") {
			b.Errorf("the root of the pod's init is %v", f)
		}
	}
}

// newest returns the ID of a container of this test.
func (b *bench) newest() string {
	list := must(b.Runtime.ListContainers(b.ctx, &api.ListContainersRequest{
		Filter: &api.ContainerFilter{LabelSelector: map[string]string{"test": b.uid}},
	}))(b)
	return list.Containers[0].Id
}

// processOf returns the PID of a container's first process, as seen in the test's PID namespace.
func (b *bench) processOf(id string) int {
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

// firstOf returns the PID of the first process in the PID namespace of process pid.
func (b *bench) firstOf(pid int) int {
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

// expectAllowed checks that a process has no more privileges than its allowance.
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
	if place := placeOf(b, pid); !strings.Contains(place, b.CgroupParent+"/") {
		b.Errorf("%s is in no cgroup of its pod:\n%s", what, place)
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
		"Uid": strings.Join([]string{a.uid, a.uid, a.uid, a.uid}, "\t"), "CapEff": a.effective(), "CapPrm": a.effective(),
		"CapBnd": a.caps, "CapInh": noCaps, "CapAmb": noCaps, "Seccomp": a.seccomp, "NoNewPrivs": a.noNew,
	} {
		if st[field] != want {
			b.Errorf("%s has %s %q, allowed is %q", what, field, st[field], want)
		}
	}
}

// effective returns the effective capabilities. A user other than root has none.
func (a allowance) effective() string {
	if !a.root && a.uid != "0" {
		return noCaps
	}
	return a.caps
}

// expectScore checks the OOM score. A higher score is accepted if this host does not allow the
// expected one.
func (b *bench) expectScore(what, got string, a allowance) {
	b.Helper()
	if n, err := strconv.Atoi(got); err != nil || n != int(a.oomScore) && (a.oomScore >= 0 || n < int(a.oomScore) || n > 0) {
		b.Errorf("%s has oom_score_adj %s, allowed is %d", what, got, a.oomScore)
	}
}

// expectDescriptors checks that no open descriptor is a directory or file of the host. Allowed are
// pipes, sockets, /dev/null and the files that a Go program opens itself.
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
		if !harmless(target) {
			b.Errorf("%s has descriptor %s open: %s", what, filepath.Base(fd), target)
		}
	}
}

// harmless reports whether a descriptor is allowed. Allowed are a pipe, an event or process
// descriptor, /dev/null, and the process's own CPU limit, which Go programs read periodically.
func harmless(target string) bool {
	for _, prefix := range []string{"pipe:", "anon_inode:[event", "anon_inode:[pidfd]", "/dev/null", "/sys/fs/cgroup/"} {
		if strings.HasPrefix(target, prefix) {
			return true
		}
	}
	return false
}

// mountOptions returns the options of the mount at a path in a process's mount namespace, or nil if
// nothing is mounted there.
func mountOptions(b *bench, pid int, at string) (opts []string) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 5 && f[4] == at {
			opts = strings.Split(f[5], ",") // the last one is the topmost
		}
	}
	return opts
}

// expectPaths expects masked and read-only mounts at those of the paths that exist in this kernel.
func (b *bench) expectPaths(what string, pid int, masked, readonly []string) {
	b.Helper()
	for _, p := range slices.Concat(masked, readonly) {
		if _, err := os.Stat(p); err != nil {
			continue
		}
		opts := mountOptions(b, pid, p)
		if opts == nil || slices.Contains(readonly, p) && !slices.Contains(opts, "ro") {
			b.Errorf("%s can access %s: mounted there is %v", what, p, opts)
		}
	}
	if f := mountOptions(b, pid, "/sys"); !slices.Contains(f, "ro") {
		b.Errorf("%s has /sys %v", what, f)
	}
}

// expectCommand checks, from the host, a command that is executed in a container.
func (b *bench) expectCommand(id, name string, a allowance) {
	b.Helper()
	ctx, stop := context.WithCancel(b.ctx)
	done := make(chan struct{})
	defer func() { stop(); <-done }()
	go func() {
		defer close(done)
		b.Runtime.ExecSync(ctx, &api.ExecSyncRequest{ContainerId: id, Cmd: []string{"/prog", "ignore"}}) // until it is killed
	}()
	container, pid := b.processOf(id), 0
	b.until("the command runs in "+name, func() bool {
		pid = findProcess(container, "/prog\x00ignore\x00")
		return pid > 0 && ignoresTerm(b, pid) // it has finished its start: a starting Go program reads its cgroup's limits
	})
	b.expectAllowed("a command in "+name, pid, a)
	if own, its := placeOf(b, container), placeOf(b, pid); own != its {
		b.Errorf("a command in %s is in other cgroups than its container, which is in\n%s:\n%s", name, own, its)
	}
}

// ignoresTerm reports whether a process ignores SIGTERM.
func ignoresTerm(b *bench, pid int) bool {
	b.Helper()
	mask := statusOf(b, pid)["SigIgn"]
	n, err := strconv.ParseUint(mask, 16, 64)
	if err != nil && mask != "" { // if it is empty, the process has ended
		b.Fatal(err)
	}
	return n&(1<<(syscall.SIGTERM-1)) != 0
}

// findProcess returns the PID of a process with this command line in the mount namespace of the process
// other. It returns 0 if there is none.
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

// placeOf returns the cgroups of a process.
func placeOf(b *bench, pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}

// expectExec checks, from inside, a command that is executed in a container.
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
		if !harmless(target) {
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
