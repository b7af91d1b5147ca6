package node

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// TestSocketsComeBack deletes the agent's sockets and their directories, including the run directory, while the agent runs. It checks that
// every socket is created again. A running pod must continue, a new pod must start, and the agent must hold the lock of the run directory.
func TestSocketsComeBack(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("edge.yaml", fmt.Sprintf(
		"apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %s/cni\ncriSocket: /run/islet/cri.sock\n", m.Disk))
	m.Write("manifests/a.yaml", sole(m, "a", ""))
	m.StartAgent()
	before := m.WaitReady("a-edge")["a-edge"].Status.ContainerStatuses[0].ContainerID

	root := m.Disk + "/kubelet"
	// A Unix socket is found by its path in any network namespace.
	sockets := []string{"/run/islet/islet.sock", "/run/islet/cri.sock", root + "/device-plugins/kubelet.sock", root + "/pod-resources/kubelet.sock",
		root + "/pods-api/pods-api.sock"}
	answer := func() bool {
		for _, path := range sockets {
			if strings.HasPrefix(path, "/run/") {
				path = fmt.Sprintf("/proc/%d/root%s", m.Pid(), path)
			}
			c, err := net.Dial("unix", path)
			if err != nil {
				return false
			}
			c.Close()
		}
		return true
	}
	m.Await("all sockets to answer", answer)
	restored := func() int { return strings.Count(m.AgentLog(1<<20), " socket=") }
	back := restored()
	for what, remove := range map[string]string{
		"the sockets":   "rm -f " + strings.Join(sockets, " "),
		"directories":   fmt.Sprintf("rm -rf %[1]s/device-plugins %[1]s/pod-resources %[1]s/pods-api %[1]s/plugins_registry; rm -f /run/islet/*.sock", root),
		"run directory": "umount -l /run/islet/b/*/rootfs 2>/dev/null; rm -rf /run/* 2>/dev/null; true",
		"a new /run":    "mount -t tmpfs run /run",
	} {
		m.Run("sh", "-c", remove)
		began := time.Now()
		m.Await("all sockets to answer after the removal of "+what, answer)
		t.Logf("%s: all answer after %v", what, time.Since(began).Round(time.Millisecond))
		now := restored()
		if now <= back {
			t.Errorf("%s: the log does not name the sockets:\n%s", what, m.AgentLog(1<<20))
		}
		back = now
		m.Await("the directory in which plugins register", func() bool { return fileExists(root + "/plugins_registry") })
		if what != "the sockets" && what != "directories" {
			continue
		}
		if now := m.WaitReady("a-edge")["a-edge"].Status.ContainerStatuses[0].ContainerID; now != before {
			t.Errorf("%s: the container was %s, and is %s", what, before, now)
		}
	}
	m.Write("manifests/b.yaml", sole(m, "b", ""))
	m.WaitReady("a-edge", "b-edge")
	for _, name := range []string{"a", "b"} {
		starts(t, m, name)
	}
	// The lock file must exist again. Another agent would fail to lock it, and islet cleanup recognizes the run directory by it.
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/root/run/islet/lock", m.Pid())); string(b) != "islet\n" {
		t.Errorf("the lock of the run directory: %q, %v", b, err)
	}
}
