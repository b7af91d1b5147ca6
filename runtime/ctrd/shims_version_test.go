package ctrd_test

import (
	"os"
	"path/filepath"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPodsAfterUpdate checks that new pods run in a shim of the new version after an update, although a shim of the old version has room. A
// container of an earlier pod continues in the old shim. After the way back, new pods run in the old shim.
func TestPodsAfterUpdate(t *testing.T) {
	n := newNode(t, 4)
	before := n.shim
	_, old := n.runPod(t, 0, "wait", "exit", "0")
	pid := n.pid(t, old)
	program, err := os.ReadFile(before)
	if err != nil {
		t.Fatal(err)
	}
	after := filepath.Join(n.dir, "islet-shim-after")
	if err := os.WriteFile(after, program, 0o755); err != nil {
		t.Fatal(err)
	}
	update := func(program string) {
		t.Helper()
		n.stop(t)
		n.shim = program
		n.start(t)
		if st := n.status(t, old); st.State != api.ContainerState_CONTAINER_RUNNING || n.pid(t, old) != pid {
			t.Errorf("the container of the first pod does not continue: %v", st.State)
		}
	}
	update(after)
	if all := n.shims(t, ""); len(all) > 0 {
		t.Errorf("shims of the new version run before there is a new pod: %v", all)
	}
	n.runPod(t, 1, "wait", "exit", "0")
	n.runPod(t, 2, "wait", "exit", "0")
	if n.shimProcess(t, "2") == 0 || n.shimProcess(t, "3") != 0 || n.shimProcess(t, "1") != 0 {
		t.Errorf("the shims of the new version are %v", n.shims(t, ""))
	}
	update(before)
	_, last := n.runPod(t, 3, "wait", "exit", "0")
	if n.shimProcess(t, "1") == 0 || n.shimProcess(t, "3") != 0 {
		t.Errorf("the shims of the old version are %v", n.shims(t, ""))
	}
	n.pid(t, last)
}
