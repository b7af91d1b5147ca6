package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// TestNothingIsExposed checks that only root has access to the files of the agent and its pods. No thread of the agent may stay in a
// namespace of a pod.
func TestNothingIsExposed(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/rich.yaml", strings.ReplaceAll(rich, "IMAGE", machine.Image))
	for i := range 5 {
		m.Write(fmt.Sprintf("manifests/p%d.yaml", i), manifest(fmt.Sprintf("p%d", i), "", "sleep"))
	}
	a := m.StartAgent()
	m.WaitReady("rich-edge", "p0-edge", "p1-edge", "p2-edge", "p3-edge", "p4-edge")
	for _, e := range m.ExposedFiles() {
		t.Error(e)
	}
	for _, kind := range []string{"net", "mnt", "ipc", "uts", "pid"} {
		host, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", m.Pid(), kind))
		if err != nil {
			t.Fatal(err)
		}
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/ns/%s", a.Pid, kind))
		if err != nil || len(threads) < 2 {
			t.Fatalf("the agent has %d threads: %v", len(threads), err)
		}
		for _, thread := range threads {
			if ns, err := os.Readlink(thread); err == nil && ns != host { // the thread may have exited
				t.Errorf("%s is %s, the host's is %s", thread, ns, host)
			}
		}
	}
}
