package node_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/api"
)

// TestFieldsThatDoNotAct checks that islet apply warns about fields without an effect on this node. islet status shows them as notes, not
// as problems. Without a cluster, the limit of ephemeral storage is such a field, because there is no eviction.
func TestFieldsThatDoNotAct(t *testing.T) {
	n, _ := startNode(t)
	n.Remove("uid-crash-pi")
	const manifest = `{kind: Pod, apiVersion: v1, metadata: {name: wide}, spec: {containers: [{name: c, resources: {limits: {ephemeral-storage: 1Gi}}}]}}`
	const warning = "Warning: pod/wide: spec.containers[0].resources.limits[ephemeral-storage] is not enforced: the pod is not evicted for what it writes (localStorageCapacityIsolation is false)\n"
	check(t, n, run(t, n, manifest, "apply", "--dry-run", "-f", "-"), 0, "pod/wide created (dry run)\n", warning)
	if got := run(t, n, "", "status"); got.Code != 0 || strings.Contains(got.Out, "Notes") {
		t.Errorf("notes without such a pod: %+v", got)
	}
	check(t, n, run(t, n, manifest, "apply", "-f", "-"), 0, "pod/wide created\n", warning)
	const note = "\nNotes:\n  - pod default/wide has fields that have no effect on this node: spec.containers[0].resources.limits[ephemeral-storage]\n"
	if got := run(t, n, "", "status"); got.Code != 0 || !strings.HasSuffix(got.Out, note) {
		t.Errorf("code %d\n%s\nlacks%s", got.Code, got.Out, note)
	}
}

func TestPodsThatAreEvicted(t *testing.T) {
	n, _ := startNode(t)
	n.Remove("uid-crash-pi")
	moved := n.Pod("moved", now, "c").DeepCopy()
	moved.Annotations["kubernetes.io/config.source"] = "api"
	n.Put(moved)
	if got := run(t, n, "", "status"); strings.Contains(got.Out, "moved") {
		t.Errorf("this node is in no cluster:\n%s", got.Out)
	}
	n.Describe = func(s *api.Status) { s.Cluster = &api.Cluster{Link: "Up"} }
	if got := run(t, n, "", "status"); got.Code != 0 ||
		!strings.Contains(got.Out, "  - the control plane deletes default/moved if this node does not answer") {
		t.Errorf("code %d\n%s", got.Code, got.Out)
	}
	stays := moved.DeepCopy()
	stays.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	n.Put(stays)
	if got := run(t, n, "", "status"); strings.Contains(got.Out, "moved") {
		t.Errorf("the status has no problem:\n%s", got.Out)
	}
}
