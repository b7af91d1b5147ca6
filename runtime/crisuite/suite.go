package crisuite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/runtime/cri"
)

// A Subject is a runtime to test. The runtime must have the image ImageRef.
type Subject struct {
	Runtime cri.Runtime
	// Kernel reports whether the runtime runs processes.
	Kernel bool
	// Handler is the runtime handler of the sandboxes. Empty means the default handler.
	Handler string
	// OnlyTests lists the tests to run. Empty means all tests. Some tests apply only to the built-in
	// runtime.
	OnlyTests []string
	// SkippedTests lists tests to skip.
	SkippedTests []string
	// CDI lists the directories of CDI specifications of the runtime; a later one takes precedence.
	// If it is empty, CDI is not tested.
	CDI []string
	// CgroupParent is the parent cgroup of the sandboxes. It may be empty.
	CgroupParent string
	// Process converts a PID from the runtime's PID namespace to the test's. Nil means that both
	// namespaces are the same.
	Process func(t testing.TB, pid int) int
	// Users is the user namespace of all sandboxes that can have one. Nil means the host's.
	Users *api.UserNamespace
}

// Run runs the contract tests against s sequentially.
func Run(t *testing.T, s Subject) {
	for _, c := range []struct {
		name   string
		kernel bool
		test   func(*testing.T, *bench)
	}{
		{"Status", false, testStatus},
		{"SandboxLife", false, testSandboxLife},
		{"SandboxFilter", false, testSandboxFilter},
		{"ContainerLife", false, testContainerLife},
		{"ContainerFilter", false, testContainerFilter},
		{"Ambiguous", false, testAmbiguous},
		{"NotFound", false, testNotFound},
		{"WrongState", false, testWrongState},
		{"MessagesAreNotShared", false, testMessages},
		{"Running", false, testRunning},
		{"Events", false, testEvents},
		{"RemoveRunning", false, testRemoveRunning},
		{"UpdatePod", false, testUpdatePod},
		{"Checkpoint", false, testCheckpoint},
		{"Verbose", true, testVerbose},
		{"Refused", true, testRefused},
		{"ForwardStopped", true, testForwardStopped},
		{"LittleMemory", true, testLittleMemory},

		{"ExitCodes", true, testExitCodes},
		{"Stop", true, testStop},
		{"StopAgain", true, testStopAgain},
		{"StartError", true, testStartError},
		{"Logs", true, testLogs},
		{"LogRotation", true, testLogRotation},
		{"Image", true, testImage},
		{"Users", true, testUsers},
		{"Mounts", true, testMounts},
		{"ImageMounts", true, testImageMounts},
		{"Devices", true, testDevices},
		{"CDI", true, testCDI},
		{"UserNamespaces", true, testUserNamespaces},
		{"NoUserNamespaces", true, testNoUserNamespaces},
		{"ReadonlyTrees", true, testReadonlyTrees},
		{"MountOptions", true, testMountOptions},
		{"ReadonlyRoot", true, testReadonlyRoot},
		{"Security", true, testSecurity},
		{"Privileged", true, testPrivileged},
		{"Namespaces", true, testNamespaces},
		{"Order", true, testOrder},
		{"SharedProcesses", true, testSharedProcesses},
		{"SharedProcessesRoot", true, testSharedProcessesRoot},
		{"Escape", true, testEscape},
		{"Target", true, testTarget},
		{"NoTarget", true, testNoTarget},
		{"HostProcesses", true, testHostProcesses},
		{"Files", true, testFiles},
		{"OOM", true, testOOM},
		{"Exec", true, testExec},
		{"ExecTimeout", true, testExecTimeout},
		{"SlowReader", true, testSlowReader},
		{"ClosingReader", true, testClosingReader},
		{"LeftBehind", true, testLeftBehind},
		{"SlowAttach", true, testSlowAttach},
		{"SlowForward", true, testSlowForward},
		{"Terminal", true, testTerminal},
		{"Attach", true, testAttach},
		{"Forward", true, testForward},
		{"Update", true, testUpdate},
		{"UpdateAll", true, testUpdateAll},
		{"UpdateRefused", true, testUpdateRefused},
		{"UpdateCreated", true, testUpdateCreated},
		{"Stats", true, testStats},
		{"Metrics", true, testMetrics},
	} {
		if len(s.OnlyTests) > 0 && !slices.Contains(s.OnlyTests, c.name) || slices.Contains(s.SkippedTests, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if c.kernel && !s.Kernel {
				t.Skip("the runtime runs no processes")
			}
			b := &bench{
				T: t, Subject: s, ctx: t.Context(), logs: t.TempDir(),
				uid: fmt.Sprintf("%s-%d", strings.ToLower(c.name), time.Now().UnixNano()),
			}
			t.Cleanup(b.removeSandboxes)
			c.test(t, b)
		})
	}
}

// A bench contains the runtime and the sandboxes of one test. The sandboxes are removed after the
// test.
type bench struct {
	*testing.T
	Subject
	ctx       context.Context
	logs, uid string
	sandboxes []string
	mapped    map[string]bool // IDs of the sandboxes in the user namespace Users
}

func (b *bench) removeSandboxes() {
	for _, id := range b.sandboxes {
		if _, err := b.Runtime.RemovePodSandbox(context.Background(), &api.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			b.Errorf("clean up: %v", err)
		}
	}
}

// must returns a function that fails the test if err is not nil, and otherwise returns v.
func must[T any](v T, err error) func(*bench) T {
	return func(b *bench) T {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return v
	}
}

// podConfig returns a sandbox configuration for this test.
func (b *bench) podConfig(change ...func(*api.PodSandboxConfig)) *api.PodSandboxConfig {
	c := &api.PodSandboxConfig{
		Metadata: &api.PodSandboxMetadata{Name: "pod", Namespace: "test", Uid: b.uid}, Hostname: "pod-0", LogDirectory: b.logs,
		Labels: map[string]string{"test": b.uid}, Annotations: map[string]string{"note": "kept verbatim"},
		Linux: &api.LinuxPodSandboxConfig{CgroupParent: b.CgroupParent, SecurityContext: &api.LinuxSandboxSecurityContext{
			NamespaceOptions: &api.NamespaceOption{Pid: api.NamespaceMode_CONTAINER},
		}},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// runPod runs a sandbox and returns its ID. The sandbox is removed after the test.
func (b *bench) runPod(c *api.PodSandboxConfig) string {
	b.Helper()
	users := b.usersFor(c)
	id := must(b.Runtime.RunPodSandbox(b.ctx, &api.RunPodSandboxRequest{Config: c, RuntimeHandler: b.Handler}))(b).PodSandboxId
	b.sandboxes = append(b.sandboxes, id)
	if users {
		b.mapped[id] = true
	}
	return id
}

// containerConfig returns the configuration of a container with arguments for prog.
func (b *bench) containerConfig(name string, args ...string) *api.ContainerConfig {
	return &api.ContainerConfig{
		Metadata: &api.ContainerMetadata{Name: name}, Image: &api.ImageSpec{Image: ImageRef}, Args: args, LogPath: name + "/0.log",
		Labels: map[string]string{"name": name, "test": b.uid}, Annotations: map[string]string{"note": "kept verbatim"},
		Linux: &api.LinuxContainerConfig{
			Resources:       &api.LinuxContainerResources{},
			SecurityContext: &api.LinuxContainerSecurityContext{NamespaceOptions: &api.NamespaceOption{Pid: api.NamespaceMode_CONTAINER}},
		},
	}
}

func (b *bench) create(pod string, cfg *api.PodSandboxConfig, c *api.ContainerConfig) string {
	b.Helper()
	b.mapContainer(pod, c)
	return must(b.Runtime.CreateContainer(b.ctx, &api.CreateContainerRequest{
		PodSandboxId: pod, Config: c, SandboxConfig: cfg,
	}))(b).ContainerId
}

func (b *bench) start(id string) {
	b.Helper()
	must(b.Runtime.StartContainer(b.ctx, &api.StartContainerRequest{ContainerId: id}))(b)
}

func (b *bench) status(id string) *api.ContainerStatus {
	b.Helper()
	return must(b.Runtime.ContainerStatus(b.ctx, &api.ContainerStatusRequest{ContainerId: id}))(b).Status
}

// awaitEnd waits until a container has ended and returns its status.
func (b *bench) awaitEnd(id string) *api.ContainerStatus {
	b.Helper()
	var st *api.ContainerStatus
	b.waitUntil("the container ends", func() bool {
		st = b.status(id)
		return st.State == api.ContainerState_CONTAINER_EXITED
	})
	return st
}

// waitUntil polls until ok returns true. It is for conditions for which the CRI has no event.
func (b *bench) waitUntil(what string, ok func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("timed out: %s", what)
		}
	}
}

// runForOutput runs a container, waits until it has ended, and returns its log and status.
func (b *bench) runForOutput(pod string, cfg *api.PodSandboxConfig, c *api.ContainerConfig) (string, *api.ContainerStatus) {
	b.Helper()
	id := b.create(pod, cfg, c)
	b.start(id)
	st := b.awaitEnd(id)
	return b.readLog(c), st
}

// readLog returns a container's log without timestamps, stream names and tags.
func (b *bench) readLog(c *api.ContainerConfig) string {
	b.Helper()
	raw, err := os.ReadFile(filepath.Join(b.logs, c.LogPath))
	if err != nil && !os.IsNotExist(err) {
		b.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(raw)) {
		if !strings.HasSuffix(line, "\n") {
			break // the line is not complete yet
		}
		part := strings.SplitN(line, " ", 4)
		if len(part) != 4 {
			b.Fatalf("log line %q", line)
		}
		if part[2] == "P" {
			part[3] = strings.TrimSuffix(part[3], "\n")
		}
		out.WriteString(part[3])
	}
	return out.String()
}

// awaitLog waits until a container's log contains a text.
func (b *bench) awaitLog(c *api.ContainerConfig, text string) {
	b.Helper()
	b.waitUntil(fmt.Sprintf("%q is logged", text), func() bool { return strings.Contains(b.readLog(c), text) })
}
