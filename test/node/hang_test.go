package node

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/test/machine"
)

// TestHangingRuntime checks that an OCI runtime that hangs blocks only its own pod. The agent must exit in time and start again.
func TestHangingRuntime(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	hang := filepath.Join(m.Disk, "hang")
	m.Write("runtime", `#!/bin/sh
case "$*" in *" run "*) [ ! -e `+hang+` ] || exec sleep 98765 ;; esac
exec "$(command -v runc || command -v crun)" "$@"
`)
	if err := os.Chmod(filepath.Join(m.Disk, "runtime"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.Write("edge.yaml", "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: "+m.Disk+"/cni\nociRuntime: "+m.Disk+
		"/runtime\n")
	m.Write("manifests/good.yaml", manifest("good", "", "count", "100ms"))
	m.StartAgent()
	good := m.WaitReady("good-edge")["good-edge"].Status.ContainerStatuses[0].ContainerID
	m.Write("hang", "")
	m.Write("manifests/slow.yaml", manifest("slow", "", "sleep"))
	m.Await("the OCI runtime to hang", func() bool { return len(hanging(m)) > 0 })
	asked := time.Now()
	m.Stop()
	if took := time.Since(asked); took > time.Minute {
		t.Errorf("the agent exited %v after SIGTERM", took)
	}
	m.StartAgent() // the OCI runtime still hangs
	if out := m.Islet("exec", "good-edge", "--", "/podtool", "cat", "/etc/hostname"); out != "good-edge\n" {
		t.Errorf("host name of the good pod is %q", out)
	}
	m.Remove("hang")
	pods := m.WaitPods("both pods to be ready", func(pods map[string]machine.Pod) bool {
		for _, pid := range hanging(m) { // otherwise the call times out after two minutes
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
				t.Error(err)
			}
		}
		return areReady(pods, []string{"good-edge", "slow-edge"})
	})
	if again := pods["good-edge"].Status.ContainerStatuses[0].ContainerID; again != good {
		t.Errorf("the good pod's container is %s, was %s", again, good)
	}
}

func hanging(m *machine.Machine) (pids []int) {
	for pid, cmd := range m.Processes() {
		if strings.Contains(cmd, "98765") {
			pids = append(pids, pid)
		}
	}
	return pids
}
