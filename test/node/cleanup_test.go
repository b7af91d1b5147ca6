package node

import (
	"fmt"
	"os"
	"testing"
)

// TestCleanupBesideAnother checks that islet cleanup needs no port of the agent. Another agent, or a kubelet that has taken the node over,
// may use these ports.
func TestCleanupBesideAnother(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/one.yaml", manifest("one", "", "sleep"))
	m.StartAgent()
	m.WaitReady("one-edge")
	m.Stop()
	m.LaunchAgent("--root-dir="+m.Disk+"/other/kubelet", "--state-dir="+m.Disk+"/other/state", "--run-dir=/run/other",
		"--pod-manifest-path="+m.Disk+"/other/manifests")
	m.Await("the other agent to listen", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/other/islet.sock", m.Pid()))
		return err == nil
	})
	if out, code := m.Try("cleanup", "--root-dir="+m.Disk+"/kubelet", "--state-dir="+m.Disk+"/state", "--run-dir=/run/islet",
		"--config="+m.Disk+"/kubelet.yaml", "--edge-config="+m.Disk+"/edge.yaml"); code != 0 {
		t.Errorf("cleanup: exit code %d\n%s", code, out)
	}
	if left := m.ContainerProcesses(); len(left) > 0 {
		t.Errorf("containers still run: %v", left)
	}
}
