package node

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// fleet starts a node with the given number of pods, which print numbers. Each shim has two pods.
func fleet(t *testing.T, n int) (*machine.Machine, []string) {
	t.Helper()
	m := bootMachine(t)
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nshimPods: 2\ncniConfDir: %s/cni\n", m.Disk))
	var names []string
	for i := range n {
		m.Write(fmt.Sprintf("manifests/p%d.yaml", i), manifest(fmt.Sprint("p", i), "", "count", "10ms"))
		names = append(names, fmt.Sprintf("p%d-edge", i))
	}
	m.StartAgent()
	m.WaitReady(names...)
	return m, names
}

func shims(m *machine.Machine) []int {
	var pids []int
	for pid, cmd := range m.Processes() {
		if strings.Contains(cmd, "islet-shim") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// restarts returns the number of restarts of all containers of the pods.
func restarts(pods map[string]machine.Pod) (n int) {
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			n += c.RestartCount
		}
	}
	return n
}

// containers maps each pod to the ID of its container.
func containers(pods map[string]machine.Pod) map[string]string {
	ids := map[string]string{}
	for name, p := range pods {
		ids[name] = p.Status.ContainerStatuses[0].ContainerID
	}
	return ids
}

func TestKillShim(t *testing.T) {
	t.Parallel()
	m, names := fleet(t, 6)
	before := containers(m.Pods())
	all := shims(m)
	if len(all) != 3 {
		t.Fatalf("6 pods, 2 a shim: want 3 shims, have %d", len(all))
	}
	kill(t, all[0])
	m.WaitPods("the pods of one shim to be replaced", func(pods map[string]machine.Pod) bool {
		return changed(before, pods) == 2 && areReady(pods, names)
	})
}

func TestKillShimsAndAgent(t *testing.T) {
	t.Parallel()
	m, names := fleet(t, 4)
	before := containers(m.Pods())
	victims := shims(m)
	m.Kill()
	for _, pid := range victims {
		kill(t, pid)
	}
	m.StartAgent()
	m.WaitPods("every pod to run again", func(pods map[string]machine.Pod) bool {
		return changed(before, pods) == len(names) && areReady(pods, names)
	})
}

func TestRestartOfAgent(t *testing.T) {
	t.Parallel()
	m, names := fleet(t, 4)
	before := containers(m.Pods())
	m.Stop()
	m.StartAgent()
	pods := m.WaitReady(names...)
	if n := changed(before, pods); n != 0 || restarts(pods) != 0 {
		t.Errorf("%d pods were replaced, %d containers restarted", n, restarts(pods))
	}
}

func TestReboot(t *testing.T) {
	t.Parallel()
	m, names := fleet(t, 5)
	before := containers(m.Pods())
	for range 3 {
		m.PowerOff()
		m.Boot()
		m.StartAgent()
		pods := m.WaitPods("every pod to run again", func(pods map[string]machine.Pod) bool {
			return changed(before, pods) == len(names) && areReady(pods, names)
		})
		before = containers(pods)
		if got := len(m.Links()); got != 1+len(names) {
			t.Errorf("want the bridge and %d veths, have %q", len(names), m.Links())
		}
	}
	for i := range names {
		m.Remove(fmt.Sprintf("manifests/p%d.yaml", i))
	}
	m.WaitReady()
	nothingLeft(t, m)
}

func changed(before map[string]string, pods map[string]machine.Pod) (n int) {
	for name, id := range before {
		p, ok := pods[name]
		if !ok || len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].ContainerID == id {
			continue
		}
		n++
	}
	return n
}

func areReady(pods map[string]machine.Pod, names []string) bool {
	for _, n := range names {
		if !pods[n].Ready() {
			return false
		}
	}
	return len(pods) == len(names)
}

// TestHungShim checks that a starting agent replaces the pods of a stopped shim. The pods of other shims must not be affected.
func TestHungShim(t *testing.T) {
	t.Parallel()
	m, names := fleet(t, 4)
	before := containers(m.Pods())
	m.Kill()
	hung := shims(m)[0]
	if err := syscall.Kill(hung, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	m.StartAgent()
	m.Await("the hung shim to be killed", func() bool { return syscall.Kill(hung, 0) == syscall.ESRCH })
	m.WaitPods("the pods of the hung shim to be replaced", func(pods map[string]machine.Pod) bool {
		return changed(before, pods) == 2 && areReady(pods, names)
	})
}
