package ctrd_test

import (
	"os"
	"path/filepath"
	"testing"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestDropLayers checks that the writable layers of exited containers are deleted. The layers of running containers are kept. The status of
// a container does not change. A container that writes nothing has an empty writable layer, even if its image lacks the mount points.
func TestDropLayers(t *testing.T) {
	n := newNode(t, 4)
	_, ended := n.runPod(t, 0, "exit", "3")
	_, runs := n.runPod(t, 1, "wait", "exit", "0")
	eventually(t, "it ends", func() bool { return n.status(t, ended).State == api.ContainerState_CONTAINER_EXITED })
	dirs := map[string]string{}
	for _, id := range []string{ended, runs} {
		found, err := filepath.Glob(filepath.Join(n.dir, "*", "containers", id, "upper"))
		if err != nil || len(found) != 1 {
			t.Fatalf("writable layer of %s: %q, %v", id, found, err)
		}
		dirs[id] = found[0]
	}
	upper := func(id string) string { return dirs[id] }
	if left, err := os.ReadDir(upper(runs)); err != nil || len(left) > 0 {
		t.Errorf("a new writable layer has %v, %v", left, err)
	}
	for _, id := range []string{ended, runs} {
		if err := os.WriteFile(filepath.Join(upper(id), "data"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := n.status(t, ended)
	if err := n.DropLayers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(upper(ended)); !os.IsNotExist(err) {
		t.Error("the layer of the ended container:", err)
	}
	if _, err := os.Stat(filepath.Join(upper(runs), "data")); err != nil {
		t.Error("the layer of the running container:", err)
	}
	if after := n.status(t, ended); after.String() != before.String() || after.ExitCode != 3 {
		t.Errorf("the status is %v, not %v", after, before)
	}
	n.stop(t)
	n.start(t)
	if after := n.status(t, ended); after.ExitCode != 3 || n.status(t, runs).State != api.ContainerState_CONTAINER_RUNNING {
		t.Errorf("after a restart: %v", after)
	}
}
