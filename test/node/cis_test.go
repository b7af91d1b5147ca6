package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cis"
)

// TestBenchmark checks that a fresh installation without a cluster meets the worker section of the CIS benchmark.
func TestBenchmark(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.OwnDirs("/etc", "/usr/local")
	cis.Install(t, m)
	unit := "/etc/systemd/system/islet.service"
	n := &cis.Node{Root: fmt.Sprintf("/proc/%d/root", m.Pid()), Units: []string{unit}}
	for line := range strings.Lines(m.Run("cat", unit)) {
		if args, ok := strings.CutPrefix(strings.TrimSpace(line), `Environment="ISLET_ARGS=`); ok {
			n.Args = strings.Fields(strings.TrimSuffix(args, `"`))
		}
	}
	if len(n.Args) == 0 {
		t.Fatal("the unit has no flags")
	}
	m.Write("put", manifest("one", "", "sleep"))
	m.Run("install", "-m", "600", m.Disk+"/put", "/etc/kubernetes/manifests/one.yaml")
	m.StartAgent(n.Args...)
	m.WaitReady("one-edge")
	for pid := range m.ContainerProcesses() {
		n.PodPids = cis.PidsLimit(t, pid, m.Cgroup)
	}
	n.Inspect(t, fmt.Sprintf("/proc/%d/root/run/islet/islet.sock", m.Pid()), m.Dial)
	n.CheckAll(t)
	if _, err := os.Stat(n.Root + "/etc/islet"); err != nil {
		t.Error(err)
	}
}
