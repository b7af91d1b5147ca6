package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

const classed = `apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  runtimeClassName: CLASS
  terminationGracePeriodSeconds: 1
  containers:
  - {name: c, image: IMAGE, imagePullPolicy: Never, args: [sleep]}
`

// TestRuntimeClassOfStaticPods checks that the runtimeClassName of a static pod selects a runtime handler. An unknown handler must be
// rejected with a message that lists the configured handlers.
func TestRuntimeClassOfStaticPods(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	program, calls := m.OCIWrapper("boxed")
	m.SetHandlers(map[string]string{"boxed": program})
	for name, class := range map[string]string{"good": "boxed", "bad": "kata"} {
		m.Write("manifests/"+name+".yaml", strings.NewReplacer("NAME", name, "CLASS", class, "IMAGE", machine.Image).Replace(classed))
	}
	m.StartAgent()
	m.WaitPods("the pod of a known class to run, and the other to be refused", func(pods map[string]machine.Pod) bool {
		return pods["good-edge"].Ready() && strings.Contains(m.Islet("describe", "bad-edge"), "FailedCreatePodSandBox")
	})
	events := m.Islet("describe", "bad-edge")
	if !strings.Contains(events, `no runtime for "kata" is configured: this node has "boxed"`) {
		t.Errorf("the events are\n%s", events)
	}
	if calls("create")+calls("run") == 0 {
		t.Error("the pod does not use the program of its handler")
	}
	links := filepath.Join(m.Disk, "state", "container-logs")
	if names := m.Files(links); len(names) != 1 || !strings.HasPrefix(names[0], "good-edge_default_c-") {
		t.Errorf("the links for log shippers are %q", names)
	} else if _, err := os.Stat(filepath.Join(links, names[0])); err != nil {
		t.Errorf("the link leads to no log: %v", err)
	}
	if n := m.Containers(); n != 1 {
		t.Errorf("%d containers run", n)
	}
}

// TestTaskShim checks that a pod whose handler is a containerd shim runs and survives a SIGKILL of the agent. Each call of islet restart
// must restart the pod without a back-off.
func TestTaskShim(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.SetHandlers(map[string]string{"tasks": m.TaskShim()})
	m.Write("manifests/pod.yaml", strings.NewReplacer("NAME", "pod", "CLASS", "tasks", "IMAGE", machine.Image).Replace(classed))
	m.StartAgent()
	before := m.WaitReady("pod-edge")["pod-edge"].Status.ContainerStatuses[0]
	if shims := taskShims(m); shims != 1 {
		t.Errorf("%d containerd shims run", shims)
	}
	m.Kill()
	m.StartAgent()
	if now := m.WaitReady("pod-edge")["pod-edge"].Status.ContainerStatuses[0]; now.ContainerID != before.ContainerID || now.RestartCount != 0 {
		t.Errorf("the container after the agent was killed: %+v, before: %+v", now, before)
	}
	for i := 1; i <= 3; i++ {
		m.Islet("restart", "pod-edge")
		if now := m.Pods()["pod-edge"].Status.ContainerStatuses[0]; now.RestartCount != i || !now.Ready {
			t.Errorf("container after restart %d: %+v", i, now)
		}
	}
	if events := m.Islet("describe", "pod-edge"); strings.Contains(events, "BackOff") {
		t.Errorf("a requested restart waited for a back-off:\n%s", events)
	}
	if err := os.Remove(filepath.Join(m.Disk, "manifests", "pod.yaml")); err != nil {
		t.Fatal(err)
	}
	m.WaitPods("the pod and its shim to be gone", func(pods map[string]machine.Pod) bool { return len(pods) == 0 && taskShims(m) == 0 })
}

// taskShims returns the number of containerd shims in a machine.
func taskShims(m *machine.Machine) (n int) {
	for _, cmd := range m.Processes() {
		if strings.Contains(cmd, "containerd-shim-") {
			n++
		}
	}
	return n
}
